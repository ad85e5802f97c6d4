"""Which part of the log a table should hold by now, and since when the rest waits.

From the log's own ends and from the checkpoint of the query that writes the table: what lies between
where it began and the end of its last finished batch must be there; what lies behind waits.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from kafkaesque.pipeline.kafka.cluster import EARLIEST, LATEST, Cluster, Partition
from kafkaesque.pipeline.kafka.fetching import Range, ReadSettings, read_range
from kafkaesque.pipeline.operate.coverage import reached_offsets
from kafkaesque.pipeline.source.durable_start import initial_offsets


@dataclass(frozen=True, slots=True)
class Held:
    """The offsets of one partition that a table has."""

    first: int
    last: int
    count: int
    """Of different ones."""


@dataclass(frozen=True, slots=True)
class Taken:
    """What a query says of itself in its checkpoint."""

    began: Mapping[Partition, int] | None
    """None: no query ran on it, and the table alone tells."""
    reached: Mapping[Partition, int]

    @classmethod
    def of(cls, checkpoint: Path) -> Taken:
        """To be asked before the table is read: a batch is in the table before it is finished."""
        return cls(initial_offsets(checkpoint), reached_offsets(checkpoint))


@dataclass(frozen=True, slots=True)
class Bounds:
    """One partition: log_start <= start <= reached, and the table should hold [start, reached)."""

    log_start: int
    log_end: int
    start: int
    reached: int

    def is_dense(self, held: Held | None) -> bool:
        """Every offset that should be there is, so that the log need not be asked for gaps."""
        if held is None:
            return self.start == self.reached
        whole = held.last - held.first + 1 == held.count
        return whole and held.first <= self.start and held.last + 1 >= self.reached


def bound(partition: Partition, ends: tuple[int, int], taken: Taken, held: Held | None) -> Bounds:
    """`ends` are the log's start and end."""
    log_start, log_end = ends
    if taken.began is not None:
        start = taken.began.get(partition, 0)
    else:
        start = log_start if held is None else held.first
    start = max(start, log_start)
    reached = max(taken.reached.get(partition, 0), start, 0 if held is None else held.last + 1)
    return Bounds(log_start, log_end, start, reached)


def log_ends(
    read: ReadSettings, pattern: str, held: Iterable[Partition]
) -> tuple[dict[Partition, tuple[int, int]], set[str]]:
    """Start and end of each partition that matches or is held; and the topics that match."""
    cluster = Cluster(read.cluster)

    def ask() -> tuple[dict[Partition, tuple[int, int]], set[str]]:
        matching = set(cluster.matching_topics(pattern))
        topics = matching | {topic for topic, _ in held}
        known = list(cluster.topology(topics).leaders) if topics else []
        starts = cluster.list_offsets(dict.fromkeys(known, EARLIEST))
        ends = cluster.list_offsets(
            dict.fromkeys(known, LATEST), committed_only=read.committed_only
        )
        return {partition: (starts[partition], ends[partition]) for partition in known}, matching

    try:
        return cluster.persist("list offsets", ask)
    finally:
        cluster.close()


def waiting_since(read: ReadSettings, partition: Partition, bounds: Bounds) -> datetime | None:
    """The time of the first record that is not in the table yet; None where only markers follow."""
    start = max(bounds.reached, bounds.log_start)
    return first_time(read, Range(*partition, start, bounds.log_end))


def first_time(read: ReadSettings, wanted: Range) -> datetime | None:
    """The time of the first record of a range; None where it holds none."""
    for batch in read_range(wanted, read):
        at: datetime = batch.column("timestamp")[0].as_py()
        return at
    return None
