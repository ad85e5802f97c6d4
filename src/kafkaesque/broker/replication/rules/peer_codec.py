"""The wire format between two brokers: frames with messages of many groups. No I/O.

A frame is an int32 length, as in Kafka's protocol, followed by parts. The first byte of a part is
its type. All numbers are big-endian and unsigned. Heartbeats and their responses are encoded as
arrays, because there may be one per group at the same time. The bytes of batches follow the
description of their entries and are not copied, neither by the writer nor by the reader.

Parts keep the order in which they were added: a heartbeat never overtakes an Append of its own
group (docs/RAFT.md, What a driver owes, 4).

`decode_frame` raises only ProtocolError, and before any part of the frame has had an effect. `link`
decides which parts are allowed on which link.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from enum import IntEnum
from itertools import islice
from typing import Final, NamedTuple, TypeAlias, cast

from kafkaesque.broker.raft import messages as raft
from kafkaesque.broker.raft.messages import Message
from kafkaesque.broker.raft.types import Entry, EntryKind, LogIndex, Membership, Snapshot, Term
from kafkaesque.model.errors import KafkaError, ProtocolError, check
from kafkaesque.model.ids import GroupId, MemberId
from kafkaesque.model.limits import KIB, MIB

FRAME_BYTES_MAX: Final = 64 * MIB + 64 * KIB
"""The largest batch that a setting allows, plus its description."""

ELEMENTS_MAX: Final = 200_000
"""Messages and entries in one frame. Bounds the time to decode any frame."""

MEMBERS_MAX: Final = 1024
"""Voters, or learners, of one group."""

COPIED_BYTES_MAX: Final = 4 * KIB
"""Smaller blobs are copied into the surrounding buffer, which is cheaper than another buffer."""

Blob: TypeAlias = bytes | bytearray | memoryview
BatchReader: TypeAlias = Callable[[memoryview], object]
"""Converts the bytes of a batch, which it may keep, to the payload of an entry."""


# -- parts ----------------------------------------------------------------------------------------


class PeerPing(NamedTuple):
    """Answered at once with the same stamp. The stamp has no meaning to the receiver."""

    stamp: int


class PeerPong(NamedTuple):
    stamp: int


class PeerPost(NamedTuple):
    """A message without acknowledgement."""

    kind: int
    body: bytes


class PeerCall(NamedTuple):
    """A request. `number` is unique among the calls of one side of one link."""

    number: int
    kind: int
    body: bytes


class Outcome(IntEnum):
    DONE = 0
    FAILED = 1
    """The body is the reason, as text."""
    BUSY = 2
    """Not started: too many calls are in flight."""


class PeerAnswer(NamedTuple):
    number: int
    outcome: Outcome
    body: bytes


class GroupMessage(NamedTuple):
    """A Raft message and its group. The payload of an entry is the BatchReader's result for a
    batch, `bytes` for other DATA, a Membership, or None."""

    group: GroupId
    message: Message


Part: TypeAlias = PeerPing | PeerPong | PeerPost | PeerCall | PeerAnswer | GroupMessage


# -- layouts --------------------------------------------------------------------------------------


class _Code(IntEnum):
    PING = 1
    PONG = 2
    POST = 3
    CALL = 4
    ANSWER = 5
    HEARTBEATS = 16
    HEARTBEAT_RESPONSES = 17
    PRE_VOTE = 18
    PRE_VOTE_RESPONSE = 19
    REQUEST_VOTE = 20
    VOTE_RESPONSE = 21
    APPEND = 22
    APPEND_RESPONSE = 23
    APPEND_REJECTED = 24
    INSTALL_SNAPSHOT = 25
    TIMEOUT_NOW = 26


class _Form(IntEnum):
    """The encoding of an entry's bytes."""

    NOTHING = 0
    MEMBERSHIP = 1
    BATCH = 2
    CONTROL = 3


_KINDS = tuple(EntryKind)

_LENGTH = struct.Struct(">I")
_PING = struct.Struct(">BQ")
_POST = struct.Struct(">BHI")
_CALL = struct.Struct(">BIHI")
_ANSWER = struct.Struct(">BIBI")

# Code, group, sender, to, term: the head of every message outside of arrays. Terms are the leader
# epochs of partitions and have as many bits.
_HEAD = ">BIQQI"
_FIXED: dict[type[raft.Message], tuple[_Code, struct.Struct]] = {
    raft.PreVote: (_Code.PRE_VOTE, struct.Struct(_HEAD + "QI")),
    raft.PreVoteResponse: (_Code.PRE_VOTE_RESPONSE, struct.Struct(_HEAD + "?")),
    raft.RequestVote: (_Code.REQUEST_VOTE, struct.Struct(_HEAD + "QI?")),
    raft.VoteResponse: (_Code.VOTE_RESPONSE, struct.Struct(_HEAD + "?")),
    raft.AppendResponse: (_Code.APPEND_RESPONSE, struct.Struct(_HEAD + "Q")),
    raft.AppendRejected: (_Code.APPEND_REJECTED, struct.Struct(_HEAD + "QQI")),
    raft.TimeoutNow: (_Code.TIMEOUT_NOW, struct.Struct(_HEAD)),
}
_APPEND = struct.Struct(_HEAD + "QIQI")  # previous index and term, commit index, entry count
_ENTRY = struct.Struct(">BBIII")  # form, kind, term, size in windows, bytes that follow
_SNAPSHOT = struct.Struct(_HEAD + "QII")  # index, term, size of the state; then the membership
_MEMBERSHIP = struct.Struct(">HH")  # voters, learners

_RUN = struct.Struct(">BQQI")  # code, sender, to, element count
_HEARTBEAT = struct.Struct(">IIQQ?")  # group, term, commit index, round, may quiesce
_HEARTBEAT_RESPONSE = struct.Struct(">IIQQQ")  # group, term, round, received, match
_RUNS = {raft.Heartbeat: _HEARTBEAT, raft.HeartbeatResponse: _HEARTBEAT_RESPONSE}
_RUN_CODES = {
    raft.Heartbeat: _Code.HEARTBEATS,
    raft.HeartbeatResponse: _Code.HEARTBEAT_RESPONSES,
}


# -- writing ------------------------------------------------------------------------------------


class FrameWriter:
    """Builds a frame. `take` returns its buffers, length first, and starts the next frame."""

    __slots__ = ("_buffers", "_run", "_run_of", "_small", "element_count", "size_bytes")

    def __init__(self) -> None:
        self._reset()

    def _reset(self) -> None:
        self._buffers: list[Blob] = []
        self._small: list[Blob] = []
        """Joined into one buffer before the next large blob."""
        self._run: list[bytes] = []
        self._run_of: tuple[type[raft.Message], MemberId, MemberId] | None = None
        self.size_bytes = 0
        """Bytes added. The heads of arrays are counted only when they are written."""
        self.element_count = 0

    def __bool__(self) -> bool:
        return self.element_count > 0

    def add(self, group: GroupId, message: raft.Message, blobs: Sequence[Blob | None]) -> None:
        """Adds a Raft message. `blobs` are the bytes of an Append's batches, None where an entry
        has none; or, optionally, the state of a snapshot. They must not change until they are
        sent."""
        kind = type(message)
        if kind in _RUNS:
            self._add_to_run(group, message)
            return
        self._end_run()
        fixed = _FIXED.get(kind)
        if fixed is not None:
            self._put(fixed[1].pack(fixed[0], group, *message))
        elif isinstance(message, raft.Append):
            self._add_append(group, message, blobs)
        else:
            self._add_snapshot(group, cast(raft.InstallSnapshot, message), blobs)
        self.element_count += 1

    def add_post(self, post: PeerPost) -> None:
        self._add_body(_POST.pack(_Code.POST, post.kind, len(post.body)), post.body)

    def add_call(self, call: PeerCall) -> None:
        self._add_body(_CALL.pack(_Code.CALL, call.number, call.kind, len(call.body)), call.body)

    def add_answer(self, answer: PeerAnswer) -> None:
        head = _ANSWER.pack(_Code.ANSWER, answer.number, answer.outcome, len(answer.body))
        self._add_body(head, answer.body)

    def take(self) -> list[Blob]:
        self._end_run()
        self._join_small()
        check(self.size_bytes <= FRAME_BYTES_MAX, f"a frame of {self.size_bytes} bytes")
        buffers = [_LENGTH.pack(self.size_bytes), *self._buffers]
        if len(buffers) > 1 and len(buffers[1]) <= COPIED_BYTES_MAX:
            buffers[:2] = [b"".join(buffers[:2])]
        self._reset()
        return buffers

    def _put(self, data: Blob) -> None:
        self.size_bytes += len(data)
        if len(data) <= COPIED_BYTES_MAX:
            self._small.append(data)
        else:
            self._join_small()
            self._buffers.append(data)

    def _join_small(self) -> None:
        if self._small:
            self._buffers.append(b"".join(self._small))
            self._small = []

    def _add_body(self, head: bytes, body: bytes) -> None:
        self._end_run()
        self._put(head)
        self._put(body)
        self.element_count += 1

    def _add_to_run(self, group: GroupId, message: raft.Message) -> None:
        run_of = (type(message), message.sender, message.to)
        if run_of != self._run_of:
            self._end_run()
            self._run_of = run_of
        data = _RUNS[run_of[0]].pack(group, *message[2:])
        self._run.append(data)
        self.size_bytes += len(data)
        self.element_count += 1

    def _end_run(self) -> None:
        if self._run_of is None:
            return
        kind, sender, to = self._run_of
        head = _RUN.pack(_RUN_CODES[kind], sender, to, len(self._run))
        self.size_bytes += len(head)
        self._small.append(head)
        self._small += self._run
        self._run = []
        self._run_of = None

    def _add_append(
        self, group: GroupId, append: raft.Append, blobs: Sequence[Blob | None]
    ) -> None:
        entries = append.entries
        check(not blobs or len(blobs) == len(entries), "an Append needs one blob per entry")
        described = []
        bodies: list[Blob] = []
        for number, entry in enumerate(entries):
            form, body = _entry_body(entry, blobs[number] if blobs else None)
            described.append(_ENTRY.pack(form, entry.kind, entry.term, entry.size_bytes, len(body)))
            bodies.append(body)
        self._put(_APPEND.pack(_Code.APPEND, group, *append[:6], len(entries)))
        self._put(b"".join(described))
        for body in bodies:
            self._put(body)
        self.element_count += len(entries)

    def _add_snapshot(
        self, group: GroupId, message: raft.InstallSnapshot, blobs: Sequence[Blob | None]
    ) -> None:
        index, term = message.snapshot.index, message.snapshot.term
        state = blobs[0] if blobs else message.snapshot.state
        if not isinstance(state, bytes | bytearray | memoryview):
            raise TypeError(f"the state of a snapshot must be bytes, not {type(state).__name__}")
        code = _Code.INSTALL_SNAPSHOT
        self._put(_SNAPSHOT.pack(code, group, *message[:3], index, term, len(state)))
        self._put(encode_membership(message.snapshot.membership))
        self._put(state)


def _entry_body(entry: Entry, blob: Blob | None) -> tuple[_Form, Blob]:
    payload = entry.payload
    if blob is not None:
        return _Form.BATCH, blob
    if payload is None:
        return _Form.NOTHING, b""
    if isinstance(payload, Membership):
        return _Form.MEMBERSHIP, encode_membership(payload)
    if isinstance(payload, bytes):
        return _Form.CONTROL, payload
    raise TypeError(f"entry {entry.index}: no bytes for {type(payload).__name__}")


def encode_membership(membership: Membership) -> bytes:
    voters, learners = membership.voters, membership.learners
    head = _MEMBERSHIP.pack(len(voters), len(learners))
    return head + struct.pack(f">{len(voters) + len(learners)}Q", *voters, *learners)


def encode_ping(stamp: int) -> bytes:
    """Returns a whole frame."""
    return _LENGTH.pack(_PING.size) + _PING.pack(_Code.PING, stamp)


def encode_pong(stamp: int) -> bytes:
    """Returns a whole frame."""
    return _LENGTH.pack(_PING.size) + _PING.pack(_Code.PONG, stamp)


# -- reading ------------------------------------------------------------------------------------


def as_it_is(batch: memoryview) -> object:
    """The simplest BatchReader: returns the bytes unchanged."""
    return batch


def decode_frame(frame: memoryview, read_batch: BatchReader = as_it_is) -> list[Part]:
    """Decodes all parts of a frame, given without its length. Batches are views of `frame`;
    everything else is copied."""
    cursor = _Cursor(frame, read_batch)
    try:
        while cursor.position < len(frame):
            read = _READERS.get(frame[cursor.position])
            if read is None:
                raise ProtocolError(f"unknown part type {frame[cursor.position]} in a peer's frame")
            read(cursor)
    except struct.error as error:
        raise ProtocolError("a peer's frame is truncated") from error
    except KafkaError as error:
        raise ProtocolError(f"a peer sent a bad batch: {error}") from error
    return cursor.parts


class _Cursor:
    """The position in a frame, and the parts decoded so far."""

    __slots__ = ("element_count", "frame", "parts", "position", "read_batch")

    def __init__(self, frame: memoryview, read_batch: BatchReader) -> None:
        self.frame = frame
        self.read_batch = read_batch
        self.position = 0
        self.element_count = 0
        self.parts: list[Part] = []

    def take(self, size_bytes: int) -> memoryview:
        stop = self.position + size_bytes
        if stop > len(self.frame):
            raise ProtocolError(
                f"a peer's frame is too short for the {size_bytes} bytes it announces"
            )
        view = self.frame[self.position : stop]
        self.position = stop
        return view

    def unpack(self, layout: struct.Struct) -> tuple[int, ...]:
        values = layout.unpack_from(self.frame, self.position)
        self.position += layout.size
        return values

    def expect(self, element_count: int) -> None:
        self.element_count += element_count
        if self.element_count > ELEMENTS_MAX:
            raise ProtocolError(f"a peer's frame has more than {ELEMENTS_MAX} elements")


def _read_ping(cursor: _Cursor) -> None:
    code, stamp = cursor.unpack(_PING)
    cursor.expect(1)
    cursor.parts.append(PeerPing(stamp) if code == _Code.PING else PeerPong(stamp))


def _read_post(cursor: _Cursor) -> None:
    _, kind, size_bytes = cursor.unpack(_POST)
    cursor.expect(1)
    cursor.parts.append(PeerPost(kind, bytes(cursor.take(size_bytes))))


def _read_call(cursor: _Cursor) -> None:
    _, number, kind, size_bytes = cursor.unpack(_CALL)
    cursor.expect(1)
    cursor.parts.append(PeerCall(number, kind, bytes(cursor.take(size_bytes))))


def _read_answer(cursor: _Cursor) -> None:
    _, number, outcome, size_bytes = cursor.unpack(_ANSWER)
    cursor.expect(1)
    if outcome > Outcome.BUSY:
        raise ProtocolError(f"unknown outcome {outcome} of a peer's call")
    cursor.parts.append(PeerAnswer(number, Outcome(outcome), bytes(cursor.take(size_bytes))))


def _read_heartbeats(cursor: _Cursor) -> None:
    _, sender, to, count = cursor.unpack(_RUN)
    cursor.expect(count)
    kind = raft.Heartbeat
    cursor.parts += [
        GroupMessage(group, kind(sender, to, *rest))  # type: ignore[arg-type]
        for group, *rest in _HEARTBEAT.iter_unpack(cursor.take(count * _HEARTBEAT.size))
    ]


def _read_heartbeat_responses(cursor: _Cursor) -> None:
    _, sender, to, count = cursor.unpack(_RUN)
    cursor.expect(count)
    kind, layout = raft.HeartbeatResponse, _HEARTBEAT_RESPONSE
    cursor.parts += [
        GroupMessage(group, kind(sender, to, *rest))  # type: ignore[arg-type]
        for group, *rest in layout.iter_unpack(cursor.take(count * layout.size))
    ]


def _reader_of(kind: type[raft.Message], layout: struct.Struct) -> Callable[[_Cursor], None]:
    """Returns a reader for messages of fixed size."""

    def read(cursor: _Cursor) -> None:
        values = cursor.unpack(layout)
        cursor.expect(1)
        cursor.parts.append(GroupMessage(GroupId(values[1]), kind._make(values[2:])))

    return read


def _read_append(cursor: _Cursor) -> None:
    _, group, sender, to, term, previous, previous_term, commit, count = cursor.unpack(_APPEND)
    cursor.expect(1 + count)
    described = cursor.take(count * _ENTRY.size)
    entries = []
    index = previous
    for form, kind, entry_term, window_bytes, size_bytes in _ENTRY.iter_unpack(described):
        index += 1
        body = cursor.take(size_bytes)
        if form == _Form.BATCH and kind == EntryKind.DATA:
            payload = cursor.read_batch(body)
        else:
            payload = _read_payload(form, kind, body)
        entries.append(Entry(index, entry_term, _KINDS[kind], window_bytes, payload))  # type: ignore[arg-type]
    message = raft.Append(sender, to, term, previous, previous_term, commit, tuple(entries))  # type: ignore[arg-type]
    cursor.parts.append(GroupMessage(GroupId(group), message))


def _read_payload(form: int, kind: int, body: memoryview) -> object:
    """Decodes the payload of an entry without a batch."""
    if kind >= len(_KINDS):
        raise ProtocolError(f"unknown entry kind {kind}")
    if form == _Form.CONTROL and kind == EntryKind.DATA:
        return bytes(body)
    if form == _Form.MEMBERSHIP and kind == EntryKind.MEMBERSHIP:
        membership, rest = _decode_membership(body)
        if rest:
            raise ProtocolError("extra bytes after a membership")
        return membership
    if form == _Form.NOTHING and kind != EntryKind.MEMBERSHIP and not body:
        return None
    raise ProtocolError(f"entry of kind {kind} in form {form} with {len(body)} bytes")


def _decode_membership(data: memoryview) -> tuple[Membership, memoryview]:
    """Returns the membership at the start of `data`, and the bytes after it."""
    voter_count, learner_count = _MEMBERSHIP.unpack_from(data)
    count = voter_count + learner_count
    if max(voter_count, learner_count) > MEMBERS_MAX:
        raise ProtocolError(f"a membership of {voter_count} voters and {learner_count} learners")
    stop = _MEMBERSHIP.size + 8 * count
    if stop > len(data):
        raise ProtocolError("a membership is truncated")
    members = iter(cast(tuple[MemberId, ...], struct.unpack_from(f">{count}Q", data, 4)))
    voters = tuple(islice(members, voter_count))
    learners = tuple(members)
    if (
        list(voters) != sorted(set(voters))
        or list(learners) != sorted(set(learners))
        or not set(voters).isdisjoint(learners)
    ):
        raise ProtocolError("the members of a membership are not sorted and unique")
    return Membership(voters, learners), data[stop:]


def _read_snapshot(cursor: _Cursor) -> None:
    _, group, *head, index, term, state_bytes = cursor.unpack(_SNAPSHOT)
    cursor.expect(1)
    membership, rest = _decode_membership(cursor.frame[cursor.position :])
    cursor.position = len(cursor.frame) - len(rest)
    state = bytes(cursor.take(state_bytes))
    snapshot = Snapshot(LogIndex(index), Term(term), membership, state)
    message = raft.InstallSnapshot._make((*head, snapshot))
    cursor.parts.append(GroupMessage(GroupId(group), message))


_READERS: dict[int, Callable[[_Cursor], None]] = {
    _Code.PING: _read_ping,
    _Code.PONG: _read_ping,
    _Code.POST: _read_post,
    _Code.CALL: _read_call,
    _Code.ANSWER: _read_answer,
    _Code.HEARTBEATS: _read_heartbeats,
    _Code.HEARTBEAT_RESPONSES: _read_heartbeat_responses,
    _Code.APPEND: _read_append,
    _Code.INSTALL_SNAPSHOT: _read_snapshot,
    **{code: _reader_of(kind, layout) for kind, (code, layout) in _FIXED.items()},
}
