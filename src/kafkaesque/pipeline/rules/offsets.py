"""Offsets by partition, their JSON form in a checkpoint, and how a batch is limited and split.

The JSON has the format of Spark's own connector, `{"topic": {"0": 123}}`, so that a checkpoint written
under one engine can be resumed under the other.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise

from kafkaesque.model.errors import check
from kafkaesque.pipeline.errors import InvalidOption

Partition = tuple[str, int]
"""Topic name and partition index."""
Offsets = Mapping[Partition, int]
SparkOffsets = dict[str, dict[str, int]]


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """Records [start, end) of one partition."""

    topic: str
    partition: int
    start: int
    end: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition} [{self.start}, {self.end})"


def to_spark(offsets: Offsets) -> SparkOffsets:
    """In a stable order: Spark compares the text of offsets to see whether anything is new."""
    shaped: SparkOffsets = {}
    for topic, partition in sorted(offsets):
        shaped.setdefault(topic, {})[str(partition)] = offsets[topic, partition]
    return shaped


def from_spark(shaped: Mapping[str, Mapping[str, int]]) -> dict[Partition, int]:
    return {
        (topic, int(partition)): int(offset)
        for topic, by_partition in shaped.items()
        for partition, offset in by_partition.items()
    }


def to_json(offsets: Offsets) -> str:
    return json.dumps(to_spark(offsets), separators=(",", ":"))


def from_json(text: str, what: str) -> dict[Partition, int]:
    """Parses an option's JSON. Raises InvalidOption that shows the expected format."""
    try:
        return from_spark(json.loads(text))
    except (ValueError, AttributeError, TypeError) as error:
        raise InvalidOption(f'{what} is not JSON like {{"topic": {{"0": 123}}}}: {text}') from error


def limit_end(start: Offsets, latest: Offsets, rows_max: int) -> dict[Partition, int]:
    """The end of a batch of at most `rows_max` offsets.

    Each partition gets a share in proportion to its backlog, as in KafkaMicroBatchStream.rateLimit.
    Every partition with a backlog gets at least one offset, so that none starves; the total may
    exceed the limit by that much.
    """
    check(rows_max > 0, f"the limit must be positive, not {rows_max} rows")
    backlog = {
        partition: latest[partition] - start.get(partition, latest[partition])
        for partition in latest
    }
    total = sum(size for size in backlog.values() if size > 0)
    if total <= rows_max:
        return dict(latest)
    end = {}
    for partition, size in backlog.items():
        begin = start.get(partition, latest[partition])
        share = max(1, rows_max * size // total) if size > 0 else 0
        end[partition] = min(begin + share, latest[partition]) if size > 0 else latest[partition]
    return end


def split(ranges: Iterable[OffsetRange], tasks_min: int | None) -> list[OffsetRange]:
    """Splits large ranges until there are about `tasks_min` of them.

    In proportion to their size, as in KafkaOffsetRangeCalculator. Offsets are counted, not records,
    because the number of records is unknown before reading.
    """
    whole = [item for item in ranges if item.end > item.start]
    if tasks_min is None or len(whole) >= tasks_min:
        return whole
    total = sum(item.end - item.start for item in whole)
    cut: list[OffsetRange] = []
    for item in whole:
        size = item.end - item.start
        parts = min(size, max(1, round(size / total * tasks_min)))
        bounds = [item.start + size * number // parts for number in range(parts + 1)]
        cut += [
            OffsetRange(item.topic, item.partition, begin, end) for begin, end in pairwise(bounds)
        ]
    return cut
