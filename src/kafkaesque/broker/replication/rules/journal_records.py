"""What a raft journal says, as values and as bytes: facts of groups, records, frames.

Pure. A record is msgpack behind its length and its CRC-32C; `replay` turns records into facts, and
is the only place where facts change, for a record just made as for one found on disk.
"""

from __future__ import annotations

import struct
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from operator import attrgetter
from typing import Final, NamedTuple

import msgspec
from msgspec import structs

from kafkaesque.broker.raft.types import (
    FRESH,
    NO_INDEX,
    EntryKind,
    HardState,
    LogIndex,
    Membership,
    Term,
)
from kafkaesque.model.errors import CorruptMessage, InvariantBroken
from kafkaesque.model.ids import GroupId, MemberId, Offset
from kafkaesque.records.crc32c import crc32c

_FRAME: Final = struct.Struct(">II")
"""Size of the body, CRC-32C of the body."""
_BODY_SIZE_BYTES_MAX: Final = 16 * 1024 * 1024
_MARK: Final = struct.Struct(">4sQ")
"""Magic, position up to which the file is durable."""
_CHECKSUM: Final = struct.Struct(">I")
_MAGIC: Final = b"KQJ1"
HEADER_SIZE_BYTES: Final = 64
"""The header is overwritten in place after every sync; within one sector that is atomic."""

index_of = attrgetter("index")


class LogStart(msgspec.Struct, frozen=True, array_like=True):
    """What stands before a log's first entry: entries up to `index` are gone or never were."""

    index: LogIndex
    term: Term
    offset: Offset
    """Of the first batch behind `index`, which begins a segment."""
    membership: Membership
    is_kept: bool = False
    """What lies before `offset` is still there, though no entry any more: a cleaner rewrites it."""


class ControlEntry(msgspec.Struct, frozen=True, array_like=True):
    """An entry without a batch: it takes an index and no offset."""

    index: LogIndex
    term: Term
    kind: EntryKind
    offset: Offset
    """Of the next batch: the entry stands before the batch with this offset, and behind all
    others."""
    payload: bytes | Membership | None


class Closing(NamedTuple):
    """How a log ended when its node last stopped."""

    last_index: LogIndex
    end_offset: Offset


class GroupFacts:
    """What the journal knows of one group. Changed by `replay` only."""

    __slots__ = ("closing", "commit_index", "control", "hard_state", "is_resetting", "start")

    def __init__(self, start: LogStart) -> None:
        self.hard_state: HardState = FRESH
        self.start = start
        self.control: list[ControlEntry] = []
        """By index. start.index < index; offsets and terms never fall."""
        self.commit_index: LogIndex = NO_INDEX
        """A hint: at most the true one."""
        self.is_resetting = False
        """The log was to be emptied and may not be yet."""
        self.closing: Closing | None = None
        """None as soon as anything else was said of the group."""

    def copy(self) -> GroupFacts:
        copy = GroupFacts(self.start)
        copy.hard_state = self.hard_state
        copy.control = list(self.control)
        copy.commit_index = self.commit_index
        copy.is_resetting = self.is_resetting
        copy.closing = self.closing
        return copy


class Record(msgspec.Struct, frozen=True, array_like=True):
    """One change of one group's facts. Tags and fields are on disk and for ever."""

    group: GroupId


class Created(Record, frozen=True, array_like=True, tag=1):
    """A group with nothing in it."""

    start: LogStart


class HardStateSaved(Record, frozen=True, array_like=True, tag=2):
    term: Term
    vote: MemberId | None


class ControlSaved(Record, frozen=True, array_like=True, tag=3):
    entry: ControlEntry


class ControlCut(Record, frozen=True, array_like=True, tag=4):
    """Control entries from `index` on are void."""

    index: LogIndex


class StartMoved(Record, frozen=True, array_like=True, tag=5):
    start: LogStart


class Reset(Record, frozen=True, array_like=True, tag=6):
    """The whole log is replaced by a start; vote and term stay."""

    start: LogStart
    is_pending: bool


class ResetDone(Record, frozen=True, array_like=True, tag=7):
    """The log was emptied."""


class CommitSaved(Record, frozen=True, array_like=True, tag=8):
    index: LogIndex


class Closed(Record, frozen=True, array_like=True, tag=9):
    last_index: LogIndex
    end_offset: Offset


class Forgotten(Record, frozen=True, array_like=True, tag=10):
    """The group is no longer on this node."""


AnyRecord = (
    Created
    | HardStateSaved
    | ControlSaved
    | ControlCut
    | StartMoved
    | Reset
    | ResetDone
    | CommitSaved
    | Closed
    | Forgotten
)

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(AnyRecord).decode


def frame(record: AnyRecord) -> bytes:
    body = _encode(record)
    return _FRAME.pack(len(body), crc32c(body)) + body


def unframe(data: bytes, position: int) -> Iterator[tuple[AnyRecord, int]]:
    """Each record from `position` on, with the position behind it.

    CorruptMessage where there is none, with the position as its second argument.
    """
    while position < len(data):
        body_position = position + _FRAME.size
        if body_position > len(data):
            raise CorruptMessage("a record is cut", position)
        size_bytes, crc = _FRAME.unpack_from(data, position)
        end = body_position + size_bytes
        if not 0 < size_bytes <= _BODY_SIZE_BYTES_MAX or end > len(data):
            raise CorruptMessage(f"a record claims {size_bytes} bytes", position)
        body = data[body_position:end]
        if crc32c(body) != crc:
            raise CorruptMessage("a record fails its checksum", position)
        try:
            record = _decode(body)
        except msgspec.MsgspecError as error:
            raise CorruptMessage(f"not a record of this version: {error}", position) from None
        yield record, end
        position = end


def encode_header(synced_position: int) -> bytes:
    mark = _MARK.pack(_MAGIC, synced_position)
    return (mark + _CHECKSUM.pack(crc32c(mark))).ljust(HEADER_SIZE_BYTES, b"\0")


def decode_header(data: bytes) -> int | None:
    """The position up to which the file was durable; None if the header is not whole."""
    if len(data) < HEADER_SIZE_BYTES:
        return None
    magic, synced_position = _MARK.unpack_from(data)
    (checksum,) = _CHECKSUM.unpack_from(data, _MARK.size)
    if magic != _MAGIC or crc32c(data[: _MARK.size]) != checksum:
        return None
    return int(synced_position)


def replay(groups: dict[GroupId, GroupFacts], record: AnyRecord) -> None:
    """Let `record` have happened."""
    if isinstance(record, Created):
        groups[record.group] = GroupFacts(_shared_start(record.start))
        return
    if isinstance(record, Forgotten):
        groups.pop(record.group, None)
        return
    facts = groups.get(record.group)
    if facts is None:
        raise InvariantBroken(f"the journal speaks of group {record.group}, which is not there")
    _change(facts, record)


def _change(facts: GroupFacts, record: AnyRecord) -> None:
    closing, facts.closing = facts.closing, None
    match record:
        case HardStateSaved():
            facts.hard_state = HardState(record.term, record.vote)
        case ControlSaved():
            facts.control.append(_shared_control(record.entry))
        case ControlCut():
            del facts.control[bisect_left(facts.control, record.index, key=index_of) :]
        case StartMoved():
            facts.start = _shared_start(record.start)
            del facts.control[: bisect_right(facts.control, record.start.index, key=index_of)]
        case Reset():
            facts.start = _shared_start(record.start)
            facts.control.clear()
            facts.is_resetting = record.is_pending
        case ResetDone():
            facts.is_resetting = False
        case CommitSaved():
            facts.commit_index = record.index
            facts.closing = closing
        case Closed():
            facts.closing = Closing(record.last_index, record.end_offset)


def records_of(group: GroupId, facts: GroupFacts) -> Iterator[AnyRecord]:
    """The shortest story that leads to these facts."""
    yield Created(group, facts.start)
    if facts.hard_state != FRESH:
        yield HardStateSaved(group, *facts.hard_state)
    if facts.is_resetting:
        yield Reset(group, facts.start, True)
    for entry in facts.control:
        yield ControlSaved(group, entry)
    if facts.commit_index != NO_INDEX:
        yield CommitSaved(group, facts.commit_index)
    if facts.closing is not None:
        yield Closed(group, *facts.closing)


_memberships: dict[Membership, Membership] = {}
"""Thousands of groups have a handful of memberships: one object for all that are equal."""
_MEMBERSHIPS_MAX: Final = 10_000


def _shared(membership: Membership) -> Membership:
    if len(_memberships) >= _MEMBERSHIPS_MAX:
        _memberships.clear()
    return _memberships.setdefault(membership, membership)


def _shared_start(start: LogStart) -> LogStart:
    return structs.replace(start, membership=_shared(start.membership))


def _shared_control(entry: ControlEntry) -> ControlEntry:
    if not isinstance(entry.payload, Membership):
        return entry
    return structs.replace(entry, payload=_shared(entry.payload))
