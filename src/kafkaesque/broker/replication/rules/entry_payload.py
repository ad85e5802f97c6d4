"""What the entries of a group's log carry: batches at hand, places of batches, bytes to check.

Pure values and comparisons; `entry_log` reads and writes.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import msgspec

from kafkaesque.broker.raft.types import SMALL_ENTRY_BYTES, Entry, LogIndex, Snapshot, Term
from kafkaesque.broker.replication.rules.journal_records import ControlEntry
from kafkaesque.model.errors import check
from kafkaesque.model.ids import NO_OFFSET, Offset
from kafkaesque.records.batch import (
    CHECKSUMMED_POSITION,
    LENGTH_OVERHEAD_BYTES,
    MAGIC,
    BatchHeader,
)
from kafkaesque.records.crc32c import crc32c

Blob = bytes | bytearray | memoryview | None

_READ_SIZE_BYTES_MAX: Final = 4 * 1024 * 1024
_BRIEF: Final = struct.Struct(">qiibI")
"""Base offset, length, leader epoch, magic, checksum: what the checksum does not cover."""


class BatchPayload(NamedTuple):
    """Of a DATA entry that is a batch: stamped, ready to be written and sent."""

    data: bytes | bytearray | memoryview
    header: BatchHeader


class BatchRef(NamedTuple):
    """Of a DATA entry that is stored; `load` has its bytes."""

    base_offset: Offset
    next_offset: Offset
    size_bytes: int
    segment_base_offset: Offset
    position: int


class Verified(NamedTuple):
    """What a step of a scrub found."""

    next_index: LogIndex
    """Where to go on; behind the last entry when all are done."""
    size_bytes: int
    damaged: list[Entry]


def runs_of(entries: Sequence[Entry]) -> Iterator[list[Entry]]:
    """Stored batches that stand one behind the other, to be read together; all else one by one."""
    run: list[Entry] = []
    for entry in entries:
        payload = entry.payload
        if run and not (type(payload) is BatchRef and _follows(run, payload)):
            yield run
            run = []
        if type(payload) is BatchRef:
            run.append(entry)
        else:
            yield [entry]
    if run:
        yield run


def _follows(run: Sequence[Entry], ref: BatchRef) -> bool:
    first: BatchRef = run[0].payload  # type: ignore[assignment]
    last: BatchRef = run[-1].payload  # type: ignore[assignment]
    end = last.position + last.size_bytes
    return (
        ref.segment_base_offset == last.segment_base_offset
        and ref.position == end
        and end + ref.size_bytes - first.position <= _READ_SIZE_BYTES_MAX
    )


def difference(data: bytes, start: int, term: Term, ref: BatchRef) -> str | None:
    """How the bytes at `start` differ from the batch they should be."""
    end = start + ref.size_bytes
    if end > len(data):
        return f"{max(0, len(data) - start)} bytes instead of {ref.size_bytes}"
    base_offset, length, epoch, magic, crc = _BRIEF.unpack_from(data, start)
    found = base_offset, length + LENGTH_OVERHEAD_BYTES, epoch, magic
    wanted = ref.base_offset, ref.size_bytes, term, MAGIC
    if found != wanted:
        return f"(offset, size, epoch, format) is {found} instead of {wanted}"
    if crc32c(memoryview(data)[start + CHECKSUMMED_POSITION : end]) != crc:
        return "checksum mismatch"
    return None


def stored_control(entry: ControlEntry) -> Entry:
    payload = entry.payload
    size_bytes = len(payload) if isinstance(payload, bytes) else SMALL_ENTRY_BYTES
    return Entry(entry.index, entry.term, entry.kind, size_bytes, payload)


@dataclass(frozen=True, slots=True)
class OwnerState:
    """What the entries up to `index` amount to, for an owner that can say so in a few bytes."""

    index: LogIndex
    data: bytes


class _State(msgspec.Struct, frozen=True):
    offset: Offset
    owner: bytes = b""
    first_offset: Offset = NO_OFFSET
    """Of the batches before `offset`; -1 if there are none."""


_decode_state = msgspec.msgpack.Decoder(_State).decode


def encode_state(offset: Offset, owner: bytes, first_offset: Offset = NO_OFFSET) -> bytes:
    is_kept = 0 <= first_offset < offset
    return msgspec.msgpack.encode(_State(offset, owner, first_offset if is_kept else NO_OFFSET))


def kept_range(snapshot: Snapshot) -> tuple[Offset, Offset]:
    """Which batches stand before the first entry behind a snapshot: [first, end), often none."""
    state = _state_of(snapshot)
    return (state.offset if state.first_offset < 0 else state.first_offset), state.offset


def owner_data(snapshot: Snapshot) -> bytes:
    """What the owner added to a snapshot."""
    return _state_of(snapshot).owner


def _state_of(snapshot: Snapshot) -> _State:
    check(isinstance(snapshot.state, bytes), "a snapshot's state is bytes")
    return _decode_state(snapshot.state)  # type: ignore[arg-type]
