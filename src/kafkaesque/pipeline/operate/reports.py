"""Reports: batch jobs over the tables. `quality`, `chat-backlog` and `upkeep` run once and end.

`quality` compares the archive with the log. What the archive should hold follows from the ends of the
log and from the archive's checkpoint: all records from its initial offsets to the end of its last
committed batch. Alerts also go to the alerts topic.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deltalake import write_deltalake
from pyspark.sql import functions as F

from kafkaesque.pipeline.errors import PipelineError
from kafkaesque.pipeline.jobs import archive as rules
from kafkaesque.pipeline.jobs import chat
from kafkaesque.pipeline.kafka.cluster import EARLIEST, LATEST, ClusterClient
from kafkaesque.pipeline.kafka.fetching import first_timestamp
from kafkaesque.pipeline.kafka.read_settings import ReadSettings
from kafkaesque.pipeline.operate.context import PipelineContext
from kafkaesque.pipeline.operate.maintenance import archive_start, maintain_table
from kafkaesque.pipeline.rules.offsets import OffsetRange, Partition, to_json
from kafkaesque.pipeline.sinks.delta_table import (
    BatchIdentity,
    open_table,
    read_table,
)
from kafkaesque.pipeline.sinks.writing import to_topic
from kafkaesque.pipeline.source.checkpoint import committed_offsets, initial_offsets
from kafkaesque.pipeline.source.options import read_options
from kafkaesque.pipeline.source.reading import read_batch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True, slots=True)
class ReportResult:
    """The result of a report."""

    name: str
    rows: list[dict[str, Any]]
    alerts: list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class TableOffsets:
    """The offsets of one partition that the table holds."""

    first: int
    last: int
    count: int
    """The number of distinct offsets."""


@dataclass(frozen=True, slots=True)
class CheckpointRange:
    """The offsets between which the query of a checkpoint has read."""

    start: Mapping[Partition, int] | None
    """None if no query ran on it; then only the table shows its start."""
    end: Mapping[Partition, int]

    @classmethod
    def of(cls, checkpoint: Path) -> CheckpointRange:
        """Read this before the table: a batch is in the table before it is committed here."""
        return cls(initial_offsets(checkpoint), committed_offsets(checkpoint))


@dataclass(frozen=True, slots=True)
class ExpectedRange:
    """One partition: the table should hold [start, reached), with log_start <= start <= reached."""

    log_start: int
    log_end: int
    start: int
    reached: int

    def is_dense(self, held: TableOffsets | None) -> bool:
        """Whether the table has every offset it should, so that the log need not be read for gaps."""
        if held is None:
            return self.start == self.reached
        whole = held.last - held.first + 1 == held.count
        return whole and held.first <= self.start and held.last + 1 >= self.reached


def expected_range(
    partition: Partition,
    ends: tuple[int, int],
    checkpoint: CheckpointRange,
    held: TableOffsets | None,
) -> ExpectedRange:
    """The offsets that the table should hold of a partition. `ends` are the log's start and end."""
    log_start, log_end = ends
    if checkpoint.start is not None:
        start = checkpoint.start.get(partition, 0)
    else:
        start = log_start if held is None else held.first
    start = max(start, log_start)
    reached = max(checkpoint.end.get(partition, 0), start, 0 if held is None else held.last + 1)
    return ExpectedRange(log_start, log_end, start, reached)


def quality(context: PipelineContext, now: datetime) -> ReportResult:
    """Compare the archive with the log by partition; appended to table `quality`."""
    checkpoint = CheckpointRange.of(context.data.checkpoint("archive"))
    archive = _table(context, "archive").select(*rules.POSITION)
    counts = rules.offset_counts(archive).localCheckpoint()
    held = {
        (row["topic"], row["partition"]): TableOffsets(
            row["first_offset"], row["last_offset"], row["offsets"]
        )
        for row in counts.collect()
    }
    log, expected = _log(context, checkpoint, held)
    doubtful = {key: item for key, item in expected.items() if not item.is_dense(held.get(key))}
    lost = rules.lost_counts(_log_records(context, doubtful, now), archive)
    due = now - timedelta(seconds=context.settings.quality_behind_s)
    report = rules.compare(counts, log, lost, due).localCheckpoint()
    wrong = rules.alerts(report)
    _append(context.table("quality"), report, now)
    alerts = [row.asDict() for row in wrong.collect()]
    if alerts:
        _alert(context, "quality", alerts)
    rows = [row.asDict() for row in report.orderBy("topic", "partition").collect()]
    return ReportResult("quality", rows, alerts)


def _log(
    context: PipelineContext, checkpoint: CheckpointRange, held: Mapping[Partition, TableOffsets]
) -> tuple[DataFrame, dict[Partition, ExpectedRange]]:
    """Every partition that the archive should read or holds, also as a frame of LOG_SCHEMA."""
    pattern = context.settings.archive_pattern
    options = context.source_options(subscribePattern=pattern)
    read = read_options(options, streaming=False).read
    ends, matching = _log_ends(read, pattern, held)
    expected = {
        key: expected_range(key, ends[key], checkpoint, held.get(key)) for key in sorted(ends)
    }
    rows = []
    for (topic, index), item in expected.items():
        waits = topic in matching and item.log_end > item.reached
        unread = OffsetRange(topic, index, max(item.reached, item.log_start), item.log_end)
        # None where only transaction markers follow.
        since = first_timestamp(unread, read) if waits else None
        rows.append((topic, index, item.log_start, item.log_end, item.reached, since))
    return context.spark.createDataFrame(rows, rules.LOG_SCHEMA), expected


def _log_ends(
    read: ReadSettings, pattern: str, held: Iterable[Partition]
) -> tuple[dict[Partition, tuple[int, int]], set[str]]:
    """Start and end of each partition that matches or is held; and the topics that match."""
    cluster = ClusterClient(read.cluster)

    def list_ends() -> tuple[dict[Partition, tuple[int, int]], set[str]]:
        matching = set(cluster.matching_topics(pattern))
        topics = matching | {topic for topic, _ in held}
        known = list(cluster.topology(topics).leaders) if topics else []
        starts = cluster.list_offsets(dict.fromkeys(known, EARLIEST))
        ends = cluster.list_offsets(
            dict.fromkeys(known, LATEST), committed_only=read.committed_only
        )
        return {partition: (starts[partition], ends[partition]) for partition in known}, matching

    try:
        return cluster.retry("list offsets", list_ends)
    finally:
        cluster.close()


def _log_records(
    context: PipelineContext, doubtful: Mapping[Partition, ExpectedRange], now: datetime
) -> DataFrame:
    """The records a reader gets: no transaction markers, aborted or compacted records."""
    if not doubtful:
        return context.spark.createDataFrame([], "topic string, partition int, offset long")
    assigned: dict[str, list[int]] = {}
    for topic, index in doubtful:
        assigned.setdefault(topic, []).append(index)
    options = context.source_options(
        assign=json.dumps(assigned),
        startingOffsets=to_json({key: item.start for key, item in doubtful.items()}),
        endingOffsets=to_json({key: item.reached for key, item in doubtful.items()}),
        failOnDataLoss="false",
    )
    records = read_batch(context.spark, options, engine=context.engine)
    if context.settings.archive_keep_days > 0:
        records = records.where(F.to_date("timestamp") >= archive_start(context.settings, now))
    return records


def chat_backlog(context: PipelineContext, now: datetime) -> ReportResult:
    """List undelivered messages and those unread for 24 h; replaces both tables."""
    states = chat.message_states(_table(context, "chat_stages"))
    waiting = chat.undelivered(states, now)
    unread = chat.unread(states, now)
    _replace(context.table("chat_undelivered"), waiting)
    _replace(context.table("chat_unread"), unread)
    rows = [row.asDict() for row in waiting.collect()]
    return ReportResult("chat-backlog", rows, [row.asDict() for row in unread.collect()])


def upkeep(context: PipelineContext, now: datetime) -> ReportResult:
    """Maintain every table: merge small files, delete expired archive rows, vacuum."""
    tables = sorted(context.data.table("x").parent.glob("*"))
    rows = [
        maintain_table(path, context.settings, now)
        for path in tables
        if open_table(path) is not None
    ]
    return ReportResult("upkeep", rows, [])


REPORTS: dict[str, Callable[[PipelineContext, datetime], ReportResult]] = {
    "quality": quality,
    "chat-backlog": chat_backlog,
    "upkeep": upkeep,
}


def run_report(name: str, context: PipelineContext) -> ReportResult:
    return REPORTS[name](context, datetime.now(tz=UTC))


def _table(context: PipelineContext, name: str) -> DataFrame:
    path = context.table(name)
    if open_table(path) is None:
        raise PipelineError(f"there is no table '{name}' yet", f"run the query that writes {path}")
    return read_table(context.spark, path)


def _append(path: Path, rows: DataFrame, now: datetime) -> None:
    checked = rows.withColumn("checked_at", F.lit(now)).toArrow()
    write_deltalake(path, checked, mode="append", schema_mode="merge")


def _replace(path: Path, rows: DataFrame) -> None:
    write_deltalake(path, rows.toArrow(), mode="overwrite", schema_mode="overwrite")


def _alert(context: PipelineContext, what: str, rows: list[dict[str, Any]]) -> None:
    records = [
        (what.encode(), json.dumps({"alert": what, **row}, default=str).encode()) for row in rows
    ]
    frame = context.spark.createDataFrame(records, "key binary, value binary").coalesce(1)
    identity = BatchIdentity(what, uuid.uuid4().hex, 0)
    to_topic(frame, context.settings.alerts_topic, context.kafka, identity)
