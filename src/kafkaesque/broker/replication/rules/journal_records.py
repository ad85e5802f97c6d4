"""The content of a raft journal, as values and as bytes: facts of groups, records, frames.

Pure. A record is msgpack, preceded by its length and CRC-32C. `replay` turns records into facts and
is the only place where facts change, for a new record as for one read from disk.
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
"""The header is overwritten in place after every sync. That is atomic within one sector."""

index_of = attrgetter("index")


class LogStart(msgspec.Struct, frozen=True, array_like=True):
    """The start of a log: entries up to `index` are gone or never existed."""

    index: LogIndex
    term: Term
    offset: Offset
    """The base offset of the first batch after `index`, which begins a segment."""
    membership: Membership
    is_kept: bool = False
    """Batches before `offset` still exist, but are no longer entries: the log cleaner rewrites
    them."""


class ControlEntry(msgspec.Struct, frozen=True, array_like=True):
    """An entry without a batch: it has an index but no offset."""

    index: LogIndex
    term: Term
    kind: EntryKind
    offset: Offset
    """The offset of the next batch: the entry comes right before that batch."""
    payload: bytes | Membership | None


class Closing(NamedTuple):
    """How a log ended when its node last stopped."""

    last_index: LogIndex
    end_offset: Offset


class GroupFacts:
    """The journal's facts about one group. Changed by `replay` only."""

    __slots__ = ("closing", "commit_index", "control", "hard_state", "is_resetting", "start")

    def __init__(self, start: LogStart) -> None:
        self.hard_state: HardState = FRESH
        self.start = start
        self.control: list[ControlEntry] = []
        """By index. start.index < index; offsets and terms never decrease."""
        self.commit_index: LogIndex = NO_INDEX
        """A hint, never greater than the actual commit index."""
        self.is_resetting = False
        """A reset was begun, and the log may not be emptied yet."""
        self.closing: Closing | None = None
        """None as soon as another record of the group follows."""

    def copy(self) -> GroupFacts:
        copy = GroupFacts(self.start)
        copy.hard_state = self.hard_state
        copy.control = list(self.control)
        copy.commit_index = self.commit_index
        copy.is_resetting = self.is_resetting
        copy.closing = self.closing
        return copy


class JournalRecord(msgspec.Struct, frozen=True, array_like=True):
    """One change of one group's facts. Tags and fields are part of the disk format and must not
    change."""

    group: GroupId


class Created(JournalRecord, frozen=True, array_like=True, tag=1):
    """A new, empty group."""

    start: LogStart


class HardStateSaved(JournalRecord, frozen=True, array_like=True, tag=2):
    term: Term
    vote: MemberId | None


class ControlSaved(JournalRecord, frozen=True, array_like=True, tag=3):
    entry: ControlEntry


class ControlCut(JournalRecord, frozen=True, array_like=True, tag=4):
    """Control entries from `index` on are void."""

    index: LogIndex


class StartMoved(JournalRecord, frozen=True, array_like=True, tag=5):
    start: LogStart


class Reset(JournalRecord, frozen=True, array_like=True, tag=6):
    """The whole log is replaced by a start. Vote and term are kept."""

    start: LogStart
    is_pending: bool


class ResetDone(JournalRecord, frozen=True, array_like=True, tag=7):
    """The log was emptied."""


class CommitSaved(JournalRecord, frozen=True, array_like=True, tag=8):
    index: LogIndex


class Closed(JournalRecord, frozen=True, array_like=True, tag=9):
    last_index: LogIndex
    end_offset: Offset


class Forgotten(JournalRecord, frozen=True, array_like=True, tag=10):
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
    """Yields each record from `position` on, with the position after it.

    Raises CorruptMessage with the position as its second argument if there is no valid record.
    """
    while position < len(data):
        body_position = position + _FRAME.size
        if body_position > len(data):
            raise CorruptMessage("a record is truncated", position)
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
    """Returns the position up to which the file was durable; None if the header is damaged."""
    if len(data) < HEADER_SIZE_BYTES:
        return None
    magic, synced_position = _MARK.unpack_from(data)
    (checksum,) = _CHECKSUM.unpack_from(data, _MARK.size)
    if magic != _MAGIC or crc32c(data[: _MARK.size]) != checksum:
        return None
    return int(synced_position)


def replay(groups: dict[GroupId, GroupFacts], record: AnyRecord) -> None:
    """Applies `record` to the facts."""
    if isinstance(record, Created):
        groups[record.group] = GroupFacts(_shared_start(record.start))
        return
    if isinstance(record, Forgotten):
        groups.pop(record.group, None)
        return
    facts = groups.get(record.group)
    if facts is None:
        raise InvariantBroken(f"the journal has a record of unknown group {record.group}")
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
    """Yields a minimal sequence of records that produces these facts."""
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
"""Interns memberships: thousands of groups share a handful of them."""
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
