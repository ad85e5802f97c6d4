"""Segment files of a broker's data directory, as one who damages them sees them."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from kafkaesque.broker.storage.checkpoint import SYNC_POINT_NAME, decode_sync_point
from kafkaesque.lab.faults.checks.history import Key
from kafkaesque.lab.faults.checks.payload import key_of
from kafkaesque.model.errors import KafkaError
from kafkaesque.records.batch import iter_batches
from kafkaesque.records.codec import decode_batch


class StoredBatch(NamedTuple):
    """One batch of a run's own records."""

    path: Path
    position: int
    size_bytes: int
    key: Key
    first_offset: int
    last_offset: int


def segment_paths(data: Path) -> list[Path]:
    """The segments of topics, oldest first in each log."""
    return sorted(data.glob("topics/*/*/*.log"))


def synced_position(segment: Path) -> int:
    """Up to which position of this segment the broker knows its log to be durable."""
    try:
        point = decode_sync_point((segment.parent / SYNC_POINT_NAME).read_bytes())
    except FileNotFoundError:
        return 0
    base_offset = int(segment.stem)
    if point is None or base_offset > point.segment.base_offset:
        return 0
    if base_offset < point.segment.base_offset:
        return segment.stat().st_size
    return point.segment.size_bytes


def stored_batches(segment: Path) -> list[StoredBatch]:
    """The durable batches that hold records of the workload; none of other topics."""
    data = segment.read_bytes()[: synced_position(segment)]
    found: list[StoredBatch] = []
    try:
        for position, header in iter_batches(data):
            batch = data[position : position + header.size_bytes]
            records = decode_batch(batch)
            key = key_of(bytes(records[0].value or b"")) if records else None
            if key is None:
                return found
            found.append(
                StoredBatch(
                    segment,
                    position,
                    header.size_bytes,
                    key,
                    int(header.base_offset),
                    int(header.last_offset),
                )
            )
    except KafkaError:
        # Damaged by an earlier fault: what lies in front of it will do.
        return found
    return found
