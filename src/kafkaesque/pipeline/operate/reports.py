"""Batch jobs over the tables: data quality, what waits in chat, and keeping tables in shape.

Each is run once and leaves a table; what somebody must look at goes to the alerts topic as well.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deltalake import write_deltalake

from kafkaesque.pipeline.errors import PipelineError
from kafkaesque.pipeline.kafka.cluster import Partition
from kafkaesque.pipeline.operate.context import Context
from kafkaesque.pipeline.operate.log_bounds import (
    Bounds,
    Held,
    Taken,
    bound,
    log_ends,
    waiting_since,
)
from kafkaesque.pipeline.operate.upkeep import archive_begins, keep_table
from kafkaesque.pipeline.sinks.delta_table import (
    BatchIdentity,
    open_table,
    read_table,
)
from kafkaesque.pipeline.sinks.writing import to_topic
from kafkaesque.pipeline.source.offsets import to_json
from kafkaesque.pipeline.source.options import read_options
from kafkaesque.pipeline.source.reading import read_batch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True, slots=True)
class Report:
    """What a batch job found."""

    name: str
    rows: list[dict[str, Any]]
    alerts: list[dict[str, Any]]


def quality(context: Context, now: datetime) -> Report:
    """The archive against the log, partition by partition; appended to table `quality`."""
    from kafkaesque.pipeline.jobs import quality as rules

    taken = Taken.of(context.places.checkpoint("archive"))
    archive = _table(context, "archive").select(*rules.POSITION)
    counts = rules.offset_counts(archive).localCheckpoint()
    held = {
        (row["topic"], row["partition"]): Held(
            row["first_offset"], row["last_offset"], row["offsets"]
        )
        for row in counts.collect()
    }
    log, bounds = _log(context, taken, held)
    doubtful = {key: item for key, item in bounds.items() if not item.is_dense(held.get(key))}
    lost = rules.lost_counts(_log_records(context, doubtful, now), archive)
    due = now - timedelta(seconds=context.knobs.quality_behind_s)
    report = rules.compare(counts, log, lost, due).localCheckpoint()
    wrong = rules.alerts(report)
    _append(context.table("quality"), report, now)
    alerts = [row.asDict() for row in wrong.collect()]
    if alerts:
        _alert(context, "quality", alerts)
    rows = [row.asDict() for row in report.orderBy("topic", "partition").collect()]
    return Report("quality", rows, alerts)


def _log(
    context: Context, taken: Taken, held: Mapping[Partition, Held]
) -> tuple[DataFrame, dict[Partition, Bounds]]:
    """Every partition that the archive should take in or has, as a frame of LOG_SCHEMA."""
    from kafkaesque.pipeline.jobs.quality import LOG_SCHEMA

    pattern = context.knobs.archive_pattern
    options = context.source_options(subscribePattern=pattern)
    read = read_options(options, streaming=False).read
    ends, matching = log_ends(read, pattern, held)
    bounds = {key: bound(key, ends[key], taken, held.get(key)) for key in sorted(ends)}
    rows = []
    for (topic, index), item in bounds.items():
        waits = topic in matching and item.log_end > item.reached
        since = waiting_since(read, (topic, index), item) if waits else None
        rows.append((topic, index, item.log_start, item.log_end, item.reached, since))
    return context.spark.createDataFrame(rows, LOG_SCHEMA), bounds


def _log_records(
    context: Context, doubtful: Mapping[Partition, Bounds], now: datetime
) -> DataFrame:
    """What a reader gets of these partitions: without markers, aborted and compacted records."""
    from pyspark.sql import functions as F

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
    if context.knobs.archive_keep_days > 0:
        records = records.where(F.to_date("timestamp") >= archive_begins(context.knobs, now))
    return records


def chat_backlog(context: Context, now: datetime) -> Report:
    """What waits for whom, and what was not read for 24 h, as of now: both tables are replaced."""
    from kafkaesque.pipeline.jobs import chat

    states = chat.message_states(_table(context, "chat_stages"))
    waiting = chat.undelivered(states, now)
    unread = chat.unread(states, now)
    _replace(context.table("chat_undelivered"), waiting)
    _replace(context.table("chat_unread"), unread)
    rows = [row.asDict() for row in waiting.collect()]
    return Report("chat-backlog", rows, [row.asDict() for row in unread.collect()])


def upkeep(context: Context, now: datetime) -> Report:
    """Every table: small files merged, rows of the archive that are too old deleted, vacuumed."""
    tables = sorted(context.places.table("x").parent.glob("*"))
    rows = [keep_table(path, context.knobs, now) for path in tables if open_table(path) is not None]
    return Report("upkeep", rows, [])


REPORTS: dict[str, Callable[[Context, datetime], Report]] = {
    "quality": quality,
    "chat-backlog": chat_backlog,
    "upkeep": upkeep,
}


def run_report(name: str, context: Context) -> Report:
    return REPORTS[name](context, datetime.now(tz=UTC))


def _table(context: Context, name: str) -> DataFrame:
    path = context.table(name)
    if open_table(path) is None:
        raise PipelineError(f"there is no table '{name}' yet", f"run the query that writes {path}")
    return read_table(context.spark, path)


def _append(path: Path, rows: DataFrame, now: datetime) -> None:
    from pyspark.sql import functions as F

    checked = rows.withColumn("checked_at", F.lit(now)).toArrow()
    write_deltalake(path, checked, mode="append", schema_mode="merge")


def _replace(path: Path, rows: DataFrame) -> None:
    write_deltalake(path, rows.toArrow(), mode="overwrite", schema_mode="overwrite")


def _alert(context: Context, what: str, rows: list[dict[str, Any]]) -> None:
    records = [
        (what.encode(), json.dumps({"alert": what, **row}, default=str).encode()) for row in rows
    ]
    frame = context.spark.createDataFrame(records, "key binary, value binary").coalesce(1)
    identity = BatchIdentity(what, uuid.uuid4().hex, 0)
    to_topic(frame, context.knobs.alerts_topic, context.kafka, identity)
