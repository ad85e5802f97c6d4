"""Frames between brokers: messages survive encoding, and hostile bytes do no harm."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkaesque.broker.raft.messages import (
    Append,
    AppendRejected,
    AppendResponse,
    Heartbeat,
    HeartbeatResponse,
    InstallSnapshot,
    Message,
    PreVote,
    PreVoteResponse,
    RequestVote,
    TimeoutNow,
    VoteResponse,
)
from kafkaesque.broker.raft.types import (
    Entry,
    EntryKind,
    LogIndex,
    Membership,
    Round,
    Snapshot,
    Term,
)
from kafkaesque.broker.replication.rules.peer_codec import (
    COPIED_BYTES_MAX,
    ELEMENTS_MAX,
    MEMBERS_MAX,
    Blob,
    FrameWriter,
    GroupMessage,
    Outcome,
    Part,
    PeerAnswer,
    PeerCall,
    PeerPing,
    PeerPong,
    PeerPost,
    decode_frame,
    encode_ping,
    encode_pong,
)
from kafkaesque.model.errors import CorruptMessage, ProtocolError
from kafkaesque.model.ids import GroupId, MemberId, NodeId, member_id

ONE, TWO = member_id(NodeId(1), 0), member_id(NodeId(2), 3)

# -- values ---------------------------------------------------------------------------------------

members = st.integers(0, 2**56 - 1).map(MemberId)
groups = st.integers(0, 2**32 - 1).map(GroupId)
terms = st.integers(0, 2**31 - 1).map(Term)
indexes = st.integers(0, 2**63).map(LogIndex)
rounds = st.integers(0, 2**63).map(Round)
heads = (members, members, terms)
bodies = st.binary(max_size=60) | st.just(b"x" * (COPIED_BYTES_MAX + 1))


@st.composite
def memberships(draw: st.DrawFn) -> Membership:
    nodes = draw(st.lists(members, unique=True, max_size=8))
    cut = draw(st.integers(0, len(nodes)))
    return Membership(tuple(sorted(nodes[:cut])), tuple(sorted(nodes[cut:])))


@st.composite
def appends(draw: st.DrawFn) -> tuple[Append, list[Blob | None]]:
    """A message as it is sent: the entries of an Append refer to batches, whose bytes come separately."""
    previous = draw(indexes)
    entries: list[Entry] = []
    blobs: list[Blob | None] = []
    for number in range(draw(st.integers(0, 6))):
        kind = draw(st.sampled_from(EntryKind))
        payload: object = None
        blob = None
        if kind is EntryKind.MEMBERSHIP:
            payload = draw(memberships())
        elif kind is EntryKind.DATA and draw(st.booleans()):
            blob = draw(bodies)
            payload = blob  # so that it equals the decoded value
        elif kind is EntryKind.DATA:
            payload = draw(bodies)
        size_bytes = draw(st.integers(0, 2**32 - 1))
        index = LogIndex(previous + 1 + number)
        entries.append(Entry(index, draw(terms), kind, size_bytes, payload))
        blobs.append(blob)
    head = [draw(field) for field in heads]
    return Append(*head, previous, draw(terms), draw(indexes), tuple(entries)), blobs


simple_messages: st.SearchStrategy[Message] = st.one_of(
    st.builds(PreVote, *heads, indexes, terms),
    st.builds(PreVoteResponse, *heads, st.booleans()),
    st.builds(RequestVote, *heads, indexes, terms, st.booleans()),
    st.builds(VoteResponse, *heads, st.booleans()),
    st.builds(AppendResponse, *heads, indexes),
    st.builds(AppendRejected, *heads, indexes, indexes, terms),
    st.builds(Heartbeat, *heads, indexes, rounds, st.booleans()),
    st.builds(HeartbeatResponse, *heads, rounds, indexes, indexes),
    st.builds(InstallSnapshot, *heads, st.builds(Snapshot, indexes, terms, memberships(), bodies)),
    st.builds(TimeoutNow, *heads),
)
with_blobs = simple_messages.map(lambda message: (message, [])) | appends()
messages = st.tuples(groups, with_blobs)
others = st.one_of(
    st.builds(PeerPost, st.integers(0, 2**16 - 1), bodies),
    st.builds(PeerCall, st.integers(0, 2**32 - 1), st.integers(0, 2**16 - 1), bodies),
    st.builds(PeerAnswer, st.integers(0, 2**32 - 1), st.sampled_from(Outcome), bodies),
)


def add(writer: FrameWriter, part: object) -> Part:
    """Add a part and return the part that must be decoded."""
    if isinstance(part, PeerPost):
        writer.add_post(part)
        return part
    if isinstance(part, PeerCall):
        writer.add_call(part)
        return part
    if isinstance(part, PeerAnswer):
        writer.add_answer(part)
        return part
    assert isinstance(part, tuple)
    group, (message, blobs) = part
    writer.add(group, message, blobs)
    return GroupMessage(group, message)


def body_of(buffers: list[Blob]) -> memoryview:
    """The frame as it arrives: one piece of memory, without the length."""
    data = b"".join(buffers)
    assert struct.unpack_from(">I", data)[0] == len(data) - 4
    return memoryview(data)[4:]


def frame_of(*parts: object) -> memoryview:
    writer = FrameWriter()
    for part in parts:
        add(writer, part)
    return body_of(writer.take())


def heartbeat(term: int = 1) -> Heartbeat:
    return Heartbeat(ONE, TWO, Term(term), LogIndex(7), Round(3), False)


def append_of(*payloads: bytes) -> tuple[Append, list[Blob | None]]:
    entries = tuple(
        Entry(LogIndex(6 + n), Term(2), EntryKind.DATA, len(payload), payload)
        for n, payload in enumerate(payloads)
    )
    return Append(ONE, TWO, Term(2), LogIndex(5), Term(1), LogIndex(4), entries), [*payloads]


# -- round trips ----------------------------------------------------------------------------------


@settings(deadline=None, max_examples=200)
@given(st.lists(messages | others, min_size=1, max_size=12))
def test_parts_survive_encoding_in_order(parts: list[object]) -> None:
    writer = FrameWriter()
    expected = [add(writer, part) for part in parts]
    assert writer

    assert decode_frame(body_of(writer.take())) == expected
    assert not writer


@pytest.mark.parametrize("stamp", [0, 1, 2**64 - 1])
def test_pings_are_whole_frames(stamp: int) -> None:
    assert decode_frame(body_of([encode_ping(stamp)])) == [PeerPing(stamp)]
    assert decode_frame(body_of([encode_pong(stamp)])) == [PeerPong(stamp)]


def test_a_writer_starts_fresh_after_each_frame() -> None:
    writer = FrameWriter()
    writer.add(GroupId(1), heartbeat(), ())
    writer.take()

    writer.add(GroupId(2), heartbeat(), ())

    assert decode_frame(body_of(writer.take())) == [GroupMessage(GroupId(2), heartbeat())]


def test_a_heartbeat_stays_after_the_append_of_its_group() -> None:
    parts = [(GroupId(16), append_of(b"batch")), (GroupId(16), (heartbeat(), ()))]

    kinds = [type(part.message) for part in decode_frame(frame_of(*parts))]  # type: ignore[union-attr]

    assert kinds == [Append, Heartbeat]


def test_adjacent_heartbeats_share_one_head() -> None:
    one = len(frame_of((GroupId(0), (heartbeat(), ()))))
    two = len(frame_of(*[(GroupId(n), (heartbeat(), ())) for n in range(2)]))
    many = len(frame_of(*[(GroupId(n), (heartbeat(), ())) for n in range(1000)]))

    assert many == one + 999 * (two - one)
    assert two - one <= 32


def test_large_batches_are_not_copied_on_the_way_out() -> None:
    batch = memoryview(b"x" * 100_000)
    writer = FrameWriter()
    append, _ = append_of(b"")
    writer.add(GroupId(16), append, [batch])
    writer.add(GroupId(17), heartbeat(), ())

    buffers = writer.take()

    assert len(buffers) == 3
    assert buffers[1] is batch


def test_small_batches_share_a_buffer() -> None:
    writer = FrameWriter()
    for group in range(100):
        message, blobs = append_of(b"small batch", b"another")
        writer.add(GroupId(group), message, blobs)

    assert len(writer.take()) <= 2


def test_received_batches_are_parts_of_the_frame_and_may_be_kept() -> None:
    frame = frame_of((GroupId(16), append_of(b"first", b"second")))

    [part] = decode_frame(frame)

    assert isinstance(part, GroupMessage)
    assert isinstance(part.message, Append)
    payloads = [entry.payload for entry in part.message.entries]
    frame.release()
    assert payloads == [b"first", b"second"]
    assert all(isinstance(payload, memoryview) for payload in payloads)


def test_control_payloads_are_bytes_and_so_differ_from_batches() -> None:
    trim = Entry(LogIndex(6), Term(2), EntryKind.DATA, 64, b"trim")
    append = Append(ONE, TWO, Term(2), LogIndex(5), Term(1), LogIndex(4), (trim,))

    [part] = decode_frame(frame_of((GroupId(16), (append, [None]))))

    assert isinstance(part, GroupMessage)
    assert isinstance(part.message, Append)
    assert type(part.message.entries[0].payload) is bytes


def test_the_reader_of_batches_makes_the_payloads() -> None:
    frame = frame_of((GroupId(16), append_of(b"first", b"second")))

    [part] = decode_frame(frame, lambda view: ("batch", view.tobytes()))

    assert isinstance(part, GroupMessage)
    assert isinstance(part.message, Append)
    payloads = [entry.payload for entry in part.message.entries]
    assert payloads == [("batch", b"first"), ("batch", b"second")]


def test_the_state_of_a_snapshot_may_come_beside_it() -> None:
    membership = Membership((ONE,), (TWO,))
    described = Snapshot(LogIndex(9), Term(2), membership, object())
    frame = frame_of((GroupId(0), (InstallSnapshot(ONE, TWO, Term(3), described), [b"tables"])))

    expected = Snapshot(LogIndex(9), Term(2), membership, b"tables")
    assert decode_frame(frame) == [
        GroupMessage(GroupId(0), InstallSnapshot(ONE, TWO, Term(3), expected))
    ]


def test_an_entry_without_its_bytes_is_an_error_of_the_sender() -> None:
    entry = Entry(LogIndex(6), Term(2), EntryKind.DATA, 64, object())
    append = Append(ONE, TWO, Term(2), LogIndex(5), Term(1), LogIndex(4), (entry,))

    with pytest.raises(TypeError, match="entry 6"):
        FrameWriter().add(GroupId(16), append, ())


# -- hostile bytes --------------------------------------------------------------------------------


def harmless(data: bytes) -> None:
    try:
        decode_frame(memoryview(data))
    except ProtocolError:
        return


@settings(deadline=None, max_examples=300)
@given(st.binary(max_size=200))
def test_noise_raises_protocol_error_or_nothing(data: bytes) -> None:
    harmless(data)


@settings(deadline=None, max_examples=200)
@given(
    st.lists(messages | others, min_size=1, max_size=4),
    st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 255)), max_size=4),
    st.integers(0, 10_000),
)
def test_damaged_frames_raise_protocol_error_or_nothing(
    parts: list[object], flips: list[tuple[int, int]], length: int
) -> None:
    data = bytearray(frame_of(*parts))
    for position, value in flips:
        data[position % len(data)] = value
    harmless(bytes(data[: 1 + length % len(data)]))


@pytest.mark.parametrize(
    "part",
    [
        PeerPost(1, b"body"),
        PeerCall(1, 2, b"body"),
        PeerAnswer(1, Outcome.DONE, b"body"),
        (GroupId(1), (heartbeat(), ())),
        (GroupId(1), (TimeoutNow(ONE, TWO, Term(1)), ())),
        (GroupId(16), append_of(b"batch", b"another")),
        (
            GroupId(0),
            (
                InstallSnapshot(
                    ONE, TWO, Term(3), Snapshot(LogIndex(1), Term(1), Membership((ONE,)), b"state")
                ),
                (),
            ),
        ),
    ],
    ids=lambda part: type(part).__name__,
)
def test_no_prefix_of_a_part_is_accepted(part: object) -> None:
    frame = frame_of(part)
    for length in range(1, len(frame)):
        with pytest.raises(ProtocolError):
            decode_frame(frame[:length])


HEAD = struct.pack(">BIQQI", 22, 16, ONE, TWO, 2) + struct.pack(">QIQ", 5, 1, 4)


@pytest.mark.parametrize(
    ("frame", "text"),
    [
        (b"\xff", "unknown part type 255"),
        (struct.pack(">BQQI", 16, ONE, TWO, 2**32 - 1), "elements"),
        (struct.pack(">BQQI", 16, ONE, TWO, ELEMENTS_MAX), "announces"),
        (HEAD + struct.pack(">I", 2**32 - 1), "elements"),
        (HEAD + struct.pack(">I", 1000), "announces"),
        (HEAD + struct.pack(">IBBIII", 1, 2, 0, 2, 5, 2**32 - 1), "announces"),
        (HEAD + struct.pack(">IBBIII", 1, 2, 3, 2, 5, 0), "unknown entry kind 3"),
        (HEAD + struct.pack(">IBBIII", 1, 9, 0, 2, 5, 0), "kind 0 in form 9"),
        (HEAD + struct.pack(">IBBIII", 1, 0, 1, 2, 5, 1) + b"x", "form 0 with 1 bytes"),
        (HEAD + struct.pack(">IBBIII", 1, 2, 2, 2, 5, 0), "kind 2 in form 2"),
        (HEAD + struct.pack(">IBBIII", 1, 1, 0, 2, 5, 4) + bytes(4), "kind 0 in form 1"),
        (
            HEAD + struct.pack(">IBBIII", 1, 1, 2, 2, 5, 5) + bytes(5),
            "extra bytes after a membership",
        ),
        (HEAD + struct.pack(">IBBIIIHH", 1, 1, 2, 2, 5, 4, MEMBERS_MAX + 1, 0), "voters"),
        (HEAD + struct.pack(">IBBIIIHH", 1, 1, 2, 2, 5, 4, 0, 1), "truncated"),
        (HEAD + struct.pack(">IBBIIIHHQQ", 1, 1, 2, 2, 5, 20, 2, 0, 2, 1), "sorted"),
        (HEAD + struct.pack(">IBBIIIHHQQ", 1, 1, 2, 2, 5, 20, 1, 1, 1, 1), "sorted"),
        (struct.pack(">BIBI", 5, 1, 7, 0), "outcome 7"),
        (b"".join(struct.pack(">BHI", 3, 1, 0) for _ in range(ELEMENTS_MAX + 1)), "elements"),
    ],
)
def test_impossible_frames_are_refused_with_a_reason(frame: bytes, text: str) -> None:
    with pytest.raises(ProtocolError, match=text):
        decode_frame(memoryview(frame))


def test_a_batch_that_its_reader_refuses_is_the_peers_error() -> None:
    def refuse(view: memoryview) -> object:
        raise CorruptMessage("bad checksum")

    with pytest.raises(ProtocolError, match="bad checksum"):
        decode_frame(frame_of((GroupId(16), append_of(b"batch"))), refuse)
