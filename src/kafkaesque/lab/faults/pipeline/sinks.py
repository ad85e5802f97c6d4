"""Compares every sink of a killed driver with the log: missing, duplicated and unexpected records."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from kafkaesque.lab.faults.pipeline.driver import (
    ARCHIVE,
    LETTERS,
    LETTERS_TABLE,
    PARQUET,
    RELAY,
    parquet_directory,
)
from kafkaesque.pipeline.jobs.repeats import BATCH_HEADER, QUERY_HEADER, ROW_HEADER
from kafkaesque.pipeline.kafka.cluster import EARLIEST, LATEST, ClusterClient
from kafkaesque.pipeline.kafka.fetching import read_range
from kafkaesque.pipeline.kafka.read_settings import ReadSettings
from kafkaesque.pipeline.paths import PipelineDirectory
from kafkaesque.pipeline.rules.offsets import OffsetRange
from kafkaesque.pipeline.source.checkpoint import initial_offsets
from kafkaesque.pipeline.source.options import read_cluster

Position = tuple[str, int, int]
"""Topic, partition, offset."""
_IDENTITY = (QUERY_HEADER, BATCH_HEADER, ROW_HEADER)


@dataclass(frozen=True, slots=True)
class SinkReport:
    """How the content of one sink differs from the log."""

    sink: str
    rows: int
    missing: int
    doubled: int
    foreign: int = 0
    """Rows that match no record of the log."""
    repeats: int = 0
    """Records that a restarted batch sent again and a reader drops by their headers. Topics only."""

    @property
    def is_whole(self) -> bool:
        return self.missing == self.doubled == self.foreign == 0


def check_sinks(
    sinks: Iterable[str], data: PipelineDirectory, bootstrap: str, pattern: str, relay_topic: str
) -> list[SinkReport]:
    """A report for each sink. A sink is expected to hold the log from where its query began."""
    cluster = read_cluster({"bootstrap.servers": bootstrap})
    read = ReadSettings(cluster, with_headers=True, committed_only=True)
    in_log = list(_log_positions(read, pattern))
    found: Mapping[str, Callable[[], list[Position]]] = {
        ARCHIVE: lambda: _delta_positions(data.table("archive")),
        LETTERS: lambda: _delta_positions(data.table(LETTERS_TABLE)),
        PARQUET: lambda: _parquet_positions(parquet_directory(data)),
    }
    reports = []
    for sink in sinks:
        wanted = _from_start(in_log, data, sink)
        if sink == RELAY:
            rows, repeats = _topic_positions(read, relay_topic)
        else:
            rows, repeats = found[sink](), 0
        reports.append(compare(sink, wanted, rows, repeats))
    return reports


def compare(sink: str, wanted: set[Position], rows: list[Position], repeats: int = 0) -> SinkReport:
    counts = Counter(rows)
    return SinkReport(
        sink,
        rows=len(rows),
        missing=len(wanted - counts.keys()),
        doubled=len(rows) - len(counts),
        foreign=len(counts.keys() - wanted),
        repeats=repeats,
    )


def _from_start(in_log: list[Position], data: PipelineDirectory, sink: str) -> set[Position]:
    """The records from the query's initial offsets on: a query that began at `latest` lacks the rest."""
    start = initial_offsets(data.checkpoint(sink)) or {}
    return {
        (topic, partition, offset)
        for topic, partition, offset in in_log
        if offset >= start.get((topic, partition), 0)
    }


def _log_positions(read: ReadSettings, pattern: str) -> Iterator[Position]:
    cluster = ClusterClient(read.cluster)
    try:
        topics = cluster.matching_topics(pattern)
        yield from (position for position, _ in _records(read, cluster, topics))
    finally:
        cluster.close()


def _records(
    read: ReadSettings, cluster: ClusterClient, topics: list[str]
) -> Iterator[tuple[Position, tuple[bytes, object]]]:
    """The position of each record, its value and its headers."""
    known = list(cluster.topology(topics).leaders)
    starts = cluster.list_offsets(dict.fromkeys(known, EARLIEST))
    ends = cluster.list_offsets(dict.fromkeys(known, LATEST), committed_only=True)
    for topic, partition in known:
        start, end = starts[topic, partition], ends[topic, partition]
        for batch in read_range(OffsetRange(topic, partition, start, end), read):
            columns = zip(
                batch.column("offset").to_pylist(),
                batch.column("value").to_pylist(),
                batch.column("headers").to_pylist(),
                strict=True,
            )
            for offset, value, headers in columns:
                yield (topic, partition, offset), (value, headers)


def _delta_positions(path: Path) -> list[Position]:
    from deltalake import DeltaTable

    table = DeltaTable(path).to_pyarrow_table(columns=["topic", "partition", "offset"])
    return [(row["topic"], row["partition"], row["offset"]) for row in table.to_pylist()]


def _parquet_positions(path: Path) -> list[Position]:
    import pyarrow.parquet as pq

    from kafkaesque.pipeline.sinks.parquet_files import committed_files

    found: list[Position] = []
    for file in committed_files(path):
        rows = pq.read_table(file, columns=["topic", "partition", "offset"]).to_pylist()
        found += [(row["topic"], row["partition"], row["offset"]) for row in rows]
    return found


def _topic_positions(read: ReadSettings, topic: str) -> tuple[list[Position], int]:
    """The positions a reader sees that drops repeats by their headers, and how many it drops."""
    cluster = ClusterClient(read.cluster)
    seen: set[tuple[bytes, ...]] = set()
    found: list[Position] = []
    repeats = 0
    try:
        for _, (value, headers) in _records(read, cluster, [topic]):
            by_name = {item["key"]: item["value"] for item in headers or ()}  # type: ignore[attr-defined]
            identity = tuple(by_name[name] for name in _IDENTITY)
            if identity in seen:
                repeats += 1
                continue
            seen.add(identity)
            row = json.loads(value)
            found.append((row["topic"], row["partition"], row["offset"]))
    finally:
        cluster.close()
    return found, repeats
