"""Batch jobs over the tables: data quality, what waits in chat, and keeping tables in shape.

Each is run once and leaves a table; what somebody must look at goes to the alerts topic as well.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deltalake import write_deltalake

from kafkaesque.pipeline.errors import PipelineError
from kafkaesque.pipeline.kafka.cluster import EARLIEST, LATEST, Cluster
from kafkaesque.pipeline.operate.context import Context
from kafkaesque.pipeline.sinks.delta_table import (
    BatchIdentity,
    keep_in_shape,
    open_table,
    read_table,
)
from kafkaesque.pipeline.sinks.writing import to_topic
from kafkaesque.pipeline.source.options import read_cluster

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

    archive = _table(context, "archive")
    counts = rules.offset_counts(archive.select("topic", "partition", "offset")).localCheckpoint()
    topics = sorted({row["topic"] for row in counts.select("topic").distinct().collect()})
    log = context.spark.createDataFrame(_log_rows(context, topics), rules.LOG_SCHEMA)
    report = rules.compare(counts, log).localCheckpoint()
    wrong = rules.alerts(report)
    _append(context.table("quality"), report, now)
    alerts = [row.asDict() for row in wrong.collect()]
    if alerts:
        _alert(context, "quality", alerts)
    rows = [row.asDict() for row in report.orderBy("topic", "partition").collect()]
    return Report("quality", rows, alerts)


def _log_rows(context: Context, topics: list[str]) -> list[tuple[str, int, int, int, bool]]:
    """Start and end of each partition that the log has; compacted topics may have gaps."""
    cluster = Cluster(read_cluster(context.kafka))
    try:
        known = list(cluster.topology(topics).leaders) if topics else []
        starts = cluster.list_offsets(dict.fromkeys(known, EARLIEST))
        ends = cluster.list_offsets(dict.fromkeys(known, LATEST))
    finally:
        cluster.close()
    compacted = _compacted_topics(context, topics)
    return [
        (topic, index, starts[topic, index], ends[topic, index], topic in compacted)
        for topic, index in sorted(known)
    ]


def _compacted_topics(context: Context, topics: list[str]) -> set[str]:
    # Documented names that the library's type stubs forget to re-export.
    from confluent_kafka.admin import (  # type: ignore[attr-defined]
        AdminClient,
        ConfigResource,
        ResourceType,
    )

    if not topics:
        return set()
    admin = AdminClient({**context.kafka, "log_level": 0})
    resources = [ConfigResource(ResourceType.TOPIC, topic) for topic in topics]
    found = set()
    for resource, future in admin.describe_configs(resources).items():
        policy = future.result()["cleanup.policy"].value or ""
        if "compact" in policy:
            found.add(resource.name)
    return found


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
    rows = []
    for path in sorted(context.places.table("x").parent.glob("*")):
        if open_table(path) is None:
            continue
        days = context.knobs.archive_keep_days
        expired = None
        if path.name == "archive" and days > 0:
            expired = f"date < DATE '{(now - timedelta(days=days)).date().isoformat()}'"
        done = keep_in_shape(path, expired=expired, keep_hours=context.knobs.table_keep_hours)
        rows.append(
            {
                "table": path.name,
                "files_before": done.files_before,
                "files_after": done.files_after,
                "files_vacuumed": done.files_removed_from_disk,
                "rows_expired": done.rows_expired,
            }
        )
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

    write_deltalake(path, rows.withColumn("checked_at", F.lit(now)).toArrow(), mode="append")


def _replace(path: Path, rows: DataFrame) -> None:
    write_deltalake(path, rows.toArrow(), mode="overwrite", schema_mode="overwrite")


def _alert(context: Context, what: str, rows: list[dict[str, Any]]) -> None:
    records = [
        (what.encode(), json.dumps({"alert": what, **row}, default=str).encode()) for row in rows
    ]
    frame = context.spark.createDataFrame(records, "key binary, value binary").coalesce(1)
    identity = BatchIdentity(what, uuid.uuid4().hex, 0)
    to_topic(frame, context.knobs.alerts_topic, context.kafka, identity)
