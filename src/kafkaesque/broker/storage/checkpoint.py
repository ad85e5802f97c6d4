"""The two small files of a log: its structure, and the point up to which it is durable.

`structure`: log start offset, leader epochs and closed segments. It changes rarely and is replaced
atomically and durably, always after a sync, so it only describes what is on disk.

`sync-point`: one record of fixed size, overwritten in place after every sync. It is not fsynced: it
survives a killed process; after a power cut it may be older than the last sync but never newer.
Everything before it was durable once, so damage there is not a torn write and is never cut;
everything after it may be torn.
"""

from __future__ import annotations

import struct
import zlib
from typing import Final, NamedTuple

import msgspec

from kafkaesque.broker.storage import durable_state
from kafkaesque.broker.storage.open_files import REAL_CALLS, SystemCalls
from kafkaesque.broker.storage.rules.epochs import EpochStart
from kafkaesque.broker.storage.rules.segment_facts import SegmentFacts
from kafkaesque.model.ids import Offset

STRUCTURE_NAME: Final = "structure"
SYNC_POINT_NAME: Final = "sync-point"
SYNC_POINT_SIZE_BYTES: Final = 80
_POINT: Final = struct.Struct(">4s9q")
_CHECKSUM: Final = struct.Struct(">I")
_MAGIC: Final = b"KQP1"


class Cleaned(msgspec.Struct, frozen=True, array_like=True):
    """How far the log is cleaned."""

    offset: Offset = Offset(0)
    """Each key occurs at most once before it."""
    next_horizon_ms: int = -1
    """When the first tombstone or marker before `offset` may be removed; -1 if there is none."""


class LogStructure(msgspec.Struct, frozen=True, array_like=True):
    """The content of the `structure` file."""

    log_start_offset: Offset = Offset(0)
    epochs: tuple[EpochStart, ...] = ()
    closed: tuple[SegmentFacts, ...] = ()
    cleaned: Cleaned = Cleaned()


class SyncPoint(NamedTuple):
    """The durable end of the log: `end_offset`, in the segment described.

    The latest epoch is included so that a log's first record needs no structure file.
    """

    end_offset: Offset
    segment: SegmentFacts
    latest_epoch: EpochStart


_decode_structure = msgspec.json.Decoder(LogStructure).decode


def save_structure(
    directory: str, structure: LogStructure, calls: SystemCalls = REAL_CALLS
) -> None:
    durable_state.save(f"{directory}/{STRUCTURE_NAME}", msgspec.json.encode(structure), calls)


def load_structure(directory: str, calls: SystemCalls = REAL_CALLS) -> LogStructure | None:
    """Returns None if there is no structure yet; raises StateDamaged if it cannot be read."""
    path = f"{directory}/{STRUCTURE_NAME}"
    content = durable_state.load(path, calls)
    if content is None:
        return None
    try:
        return _decode_structure(content)
    except msgspec.MsgspecError as error:
        raise durable_state.StateDamaged(f"{path}: {error}") from error


def encode_sync_point(point: SyncPoint) -> bytes:
    facts = point.segment
    body = _POINT.pack(
        _MAGIC,
        point.end_offset,
        *point.latest_epoch,
        facts.base_offset,
        facts.size_bytes,
        facts.first_timestamp,
        facts.max_timestamp,
        facts.max_timestamp_position,
        facts.index_count,
    )
    return body + _CHECKSUM.pack(zlib.crc32(body))


def decode_sync_point(data: bytes) -> SyncPoint | None:
    """Returns None if the record is incomplete or fails its checksum."""
    if len(data) != SYNC_POINT_SIZE_BYTES:
        return None
    magic, end_offset, epoch, epoch_start, *facts = _POINT.unpack_from(data)
    (checksum,) = _CHECKSUM.unpack_from(data, _POINT.size)
    if magic != _MAGIC or zlib.crc32(data[: _POINT.size]) != checksum:
        return None
    return SyncPoint(end_offset, SegmentFacts(*facts), (epoch, epoch_start))
