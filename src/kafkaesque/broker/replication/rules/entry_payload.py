"""Payloads of the entries of a group's log, and the state that its snapshots carry.

An entry carries a batch in memory, a reference to a stored batch, or a control entry's bytes. Pure
values and comparisons; `entry_log` reads and writes the log.
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
from kafkaesque.records.batch import BatchHeader
from kafkaesque.records.crc32c import crc32c
from kafkaesque.records.layout import CHECKSUMMED_POSITION, LENGTH_OVERHEAD_BYTES, MAGIC

Blob = bytes | bytearray | memoryview | None

_READ_SIZE_BYTES_MAX: Final = 4 * 1024 * 1024
_BRIEF: Final = struct.Struct(">qiibI")
"""Base offset, length, leader epoch, magic, checksum: the fields that the checksum does not
cover."""


class BatchPayload(NamedTuple):
    """The payload of a DATA entry with a batch in memory: stamped, ready to be written and sent."""

    data: bytes | bytearray | memoryview
    header: BatchHeader


class BatchRef(NamedTuple):
    """The payload of a DATA entry whose batch is in the log. `EntryLog.load` reads its bytes."""

    base_offset: Offset
    next_offset: Offset
    size_bytes: int
    segment_base_offset: Offset
    position: int


class Verified(NamedTuple):
    """The result of one step of a scrub."""

    next_index: LogIndex
    """Where to continue; the index after the last entry when the scrub is complete."""
    size_bytes: int
    damaged: list[Entry]


def runs_of(entries: Sequence[Entry]) -> Iterator[list[Entry]]:
    """Groups stored batches that are adjacent in a segment, to be read together. All other entries
    come alone."""
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
    """Describes how the bytes at `start` differ from the expected batch; None if they match."""
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


# -- the state of a snapshot ----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class MachineState:
    """A state machine's state after the entries up to `index`, if it fits in a few bytes."""

    index: LogIndex
    data: bytes


class _State(msgspec.Struct, frozen=True):
    offset: Offset
    owner: bytes = b""
    """The state machine's part. The field's name is part of the format."""
    first_offset: Offset = NO_OFFSET
    """The offset of the first batch before `offset`; -1 if there are none."""


_decode_state = msgspec.msgpack.Decoder(_State).decode


def encode_state(offset: Offset, machine: bytes, first_offset: Offset = NO_OFFSET) -> bytes:
    is_kept = 0 <= first_offset < offset
    return msgspec.msgpack.encode(_State(offset, machine, first_offset if is_kept else NO_OFFSET))


def kept_range(snapshot: Snapshot) -> tuple[Offset, Offset]:
    """Returns the range [first, end) of the batches before a snapshot's first entry. Often
    empty."""
    state = _state_of(snapshot)
    return (state.offset if state.first_offset < 0 else state.first_offset), state.offset


def machine_data(snapshot: Snapshot) -> bytes:
    """Returns the state machine's part of a snapshot's state."""
    return _state_of(snapshot).owner


def _state_of(snapshot: Snapshot) -> _State:
    check(isinstance(snapshot.state, bytes), "a snapshot's state is bytes")
    return _decode_state(snapshot.state)  # type: ignore[arg-type]
