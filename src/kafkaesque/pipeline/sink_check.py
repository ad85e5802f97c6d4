"""Every sink of a killed driver against the log: which records are missing, which are there twice."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from kafkaesque.pipeline.jobs.identity import BATCH_HEADER, QUERY_HEADER, ROW_HEADER
from kafkaesque.pipeline.kafka.cluster import EARLIEST, LATEST, Cluster
from kafkaesque.pipeline.kafka.fetching import Range, ReadSettings, read_range
from kafkaesque.pipeline.killed_driver import (
    ARCHIVE,
    LETTERS,
    LETTERS_TABLE,
    PARQUET,
    RELAY,
    parquet_directory,
)
from kafkaesque.pipeline.places import Places
from kafkaesque.pipeline.source.options import read_cluster

Place = tuple[str, int, int]
"""Topic, partition, offset."""
_IDENTITY = (QUERY_HEADER, BATCH_HEADER, ROW_HEADER)


@dataclass(frozen=True, slots=True)
class SinkReport:
    """What one sink holds of what it should."""

    sink: str
    rows: int
    missing: int
    doubled: int
    foreign: int = 0
    """Rows that no record of the log accounts for."""
    repeats: int = 0
    """Records of a restarted batch that a reader drops by their identity; a topic's only."""

    @property
    def is_whole(self) -> bool:
        return self.missing == self.doubled == self.foreign == 0


def check_sinks(
    sinks: Iterable[str], data: Path, bootstrap: str, pattern: str, relay_topic: str
) -> list[SinkReport]:
    """Of every sink named; each began at the beginning of the log, or where its checkpoint says."""
    places = Places(data)
    cluster = read_cluster({"bootstrap.servers": bootstrap})
    read = ReadSettings(cluster, with_headers=True, committed_only=True)
    in_log = list(_log_places(read, pattern))
    found: Mapping[str, Callable[[], list[Place]]] = {
        ARCHIVE: lambda: _delta_places(places.table("archive")),
        LETTERS: lambda: _delta_places(places.table(LETTERS_TABLE)),
        PARQUET: lambda: _parquet_places(parquet_directory(places)),
    }
    reports = []
    for sink in sinks:
        wanted = _from_start(in_log, places, sink)
        if sink == RELAY:
            rows, repeats = _topic_places(read, relay_topic)
        else:
            rows, repeats = found[sink](), 0
        reports.append(compare(sink, wanted, rows, repeats))
    return reports


def compare(sink: str, wanted: set[Place], rows: list[Place], repeats: int = 0) -> SinkReport:
    counts = Counter(rows)
    return SinkReport(
        sink,
        rows=len(rows),
        missing=len(wanted - counts.keys()),
        doubled=len(rows) - len(counts),
        foreign=len(counts.keys() - wanted),
        repeats=repeats,
    )


def _from_start(in_log: list[Place], places: Places, sink: str) -> set[Place]:
    """Without what was in the log before a query with `latest` began."""
    written = places.checkpoint(sink) / "kafkaesque" / "initial-offsets-0.json"
    start = json.loads(written.read_text()) if written.exists() else {}
    return {
        (topic, partition, offset)
        for topic, partition, offset in in_log
        if offset >= start.get(topic, {}).get(str(partition), 0)
    }


def _log_places(read: ReadSettings, pattern: str) -> Iterator[Place]:
    cluster = Cluster(read.cluster)
    try:
        topics = cluster.matching_topics(pattern)
        yield from (place for place, _ in _records(read, cluster, topics))
    finally:
        cluster.close()


def _records(
    read: ReadSettings, cluster: Cluster, topics: list[str]
) -> Iterator[tuple[Place, tuple[bytes, object]]]:
    """Where each record stands, its value and headers."""
    known = list(cluster.topology(topics).leaders)
    starts = cluster.list_offsets(dict.fromkeys(known, EARLIEST))
    ends = cluster.list_offsets(dict.fromkeys(known, LATEST), committed_only=True)
    for topic, partition in known:
        start, end = starts[topic, partition], ends[topic, partition]
        for batch in read_range(Range(topic, partition, start, end), read):
            columns = zip(
                batch.column("offset").to_pylist(),
                batch.column("value").to_pylist(),
                batch.column("headers").to_pylist(),
                strict=True,
            )
            for offset, value, headers in columns:
                yield (topic, partition, offset), (value, headers)


def _delta_places(path: Path) -> list[Place]:
    from deltalake import DeltaTable

    table = DeltaTable(path).to_pyarrow_table(columns=["topic", "partition", "offset"])
    return [(row["topic"], row["partition"], row["offset"]) for row in table.to_pylist()]


def _parquet_places(path: Path) -> list[Place]:
    import pyarrow.parquet as pq

    from kafkaesque.pipeline.sinks.parquet_files import committed_files

    found: list[Place] = []
    for file in committed_files(path):
        rows = pq.read_table(file, columns=["topic", "partition", "offset"]).to_pylist()
        found += [(row["topic"], row["partition"], row["offset"]) for row in rows]
    return found


def _topic_places(read: ReadSettings, topic: str) -> tuple[list[Place], int]:
    """What a reader sees that drops repeats by the headers of `topic_sender`, and how many it drops."""
    cluster = Cluster(read.cluster)
    seen: set[tuple[bytes, ...]] = set()
    found: list[Place] = []
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
