"""Compares the logs that the brokers of a stopped cluster have of one partition, byte for byte.

Below the high watermark every replica must hold the same batches (research/reliability.md 2.5.1). Where
segments begin and how far logs reach beyond it may differ: replicas roll by their own clocks.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from kafkaesque.model.errors import KafkaError
from kafkaesque.records.batch import iter_batches


class ReplicaLog(NamedTuple):
    """The batches of one replica by first offset: (next offset, checksum of all their bytes)."""

    batches: dict[int, tuple[int, int]]
    damage: str | None
    """Where the log cannot be read, if there is such a place."""

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
    """How the replicas differ below `high_watermark`; nothing if they do not."""
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
