"""Reads the segment files of brokers: to choose what to damage, and to compare replicas.

Below the high watermark all replicas must hold the same batches, byte for byte. Where segments begin and
how far logs extend beyond the high watermark may differ: replicas roll segments by their own clocks.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from kafkaesque.broker.storage.checkpoint import SYNC_POINT_NAME, decode_sync_point
from kafkaesque.lab.faults.checks.history import Key
from kafkaesque.lab.faults.checks.payload import key_of
from kafkaesque.model.errors import KafkaError
from kafkaesque.records.batch import iter_batches
from kafkaesque.records.codec import decode_batch


class StoredBatch(NamedTuple):
    """One batch of the workload's records."""

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
    """The position in this segment up to which the broker has recorded it as synced."""
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
    """The synced batches with records of the workload; empty for other topics."""
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
        # Damaged by an earlier fault: the batches before it are enough.
        return found
    return found


class ReplicaLog(NamedTuple):
    """The batches of one replica by first offset: (next offset, checksum of all their bytes)."""

    batches: dict[int, tuple[int, int]]
    damage: str | None
    """Where the log cannot be read; None if all of it can."""

    @property
    def start(self) -> int:
        return min(self.batches, default=0)

    @property
    def end(self) -> int:
        return max((following for following, _ in self.batches.values()), default=0)


def read_replica(directory: Path) -> ReplicaLog:
    batches: dict[int, tuple[int, int]] = {}
    for segment in sorted(directory.glob("*.log")):
        data = segment.read_bytes()
        try:
            for position, header in iter_batches(data):
                bytes_ = data[position : position + header.size_bytes]
                batches[int(header.base_offset)] = int(header.next_offset), zlib.crc32(bytes_)
        except KafkaError as error:
            return ReplicaLog(batches, f"{segment}: {error}")
    return ReplicaLog(batches, None)


def compare_replicas(
    name: str, logs: Mapping[int, ReplicaLog], high_watermark: int
) -> Iterator[str]:
    """Yields how the replicas differ below `high_watermark`."""
    for node, log in logs.items():
        if log.damage is not None:
            yield f"{name}: node {node} cannot be read: {log.damage}"
        if log.end < high_watermark:
            yield f"{name}: node {node} ends at {log.end}, before the committed {high_watermark}"
    start = max((log.start for log in logs.values()), default=0)
    committed = {
        node: {
            offset: batch
            for offset, batch in log.batches.items()
            if offset >= start and batch[0] <= high_watermark
        }
        for node, log in logs.items()
    }
    (first, expected), *others = committed.items()
    for node, batches in others:
        differing = sorted(
            offset
            for offset in expected.keys() | batches.keys()
            if expected.get(offset) != batches.get(offset)
        )
        if differing:
            yield (
                f"{name}: nodes {first} and {node} differ in {len(differing)} committed batch(es), "
                f"the first at offset {differing[0]}"
            )
