"""What each named query does with a batch. Every function may be called again with the same batch.

Order matters where a batch goes to several places: each place knows by itself whether it has the
batch, so that a crash between two of them leaves nothing out and writes nothing twice.
"""

from __future__ import annotations

from collections.abc import Callable

from deltalake import DeltaTable
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from kafkaesque.pipeline.jobs import chat
from kafkaesque.pipeline.jobs.archive import PARTITION_BY
from kafkaesque.pipeline.jobs.envelopes import dead_letters
from kafkaesque.pipeline.jobs.posts import (
    clean_posts,
    deletions,
    first_of_each,
    not_yet_known,
    without_deleted,
)
from kafkaesque.pipeline.jobs.trends import top_trends, trend_records
from kafkaesque.pipeline.operate.context import Context
from kafkaesque.pipeline.sinks.delta_table import (
    BatchIdentity,
    is_committed,
    open_table,
    read_table,
)
from kafkaesque.pipeline.sinks.writing import to_table, to_topic

Write = Callable[[DataFrame, BatchIdentity, Context], None]

DELETIONS_AT_ONCE = 500
"""Ids in one predicate; more are taken in several commits."""


def only_table(name: str) -> Write:
    """All rows into one table."""

    def write(rows: DataFrame, identity: BatchIdentity, context: Context) -> None:
        to_table(rows, context.table(name), identity)

    return write


def archive(rows: DataFrame, identity: BatchIdentity, context: Context) -> None:
    to_table(rows, context.table("archive"), identity, PARTITION_BY)


def posts(events: DataFrame, identity: BatchIdentity, context: Context) -> None:
    """New posts in, unreadable records aside, deleted posts out."""
    path = context.table("posts")
    events.persist()
    try:
        deleted = deletions(events)
        if not is_committed(path, identity):
            fresh = first_of_each(clean_posts(events))
            if open_table(path) is not None:
                dates = [str(row["date"]) for row in fresh.select("date").distinct().collect()]
                known = read_table(context.spark, path, {"date": _as_dates(dates)})
                fresh = not_yet_known(fresh, known)
            to_table(without_deleted(fresh, deleted), path, identity, ("date",))
        to_table(dead_letters(events), context.table("posts_dead"), identity)
        delete_posts(context, deleted)
    finally:
        events.unpersist()


def _as_dates(texts: list[str]) -> list[object]:
    from datetime import date

    return [date.fromisoformat(text) for text in texts if text != "None"]


def delete_posts(context: Context, deleted: DataFrame) -> None:
    """Deleting again what is gone changes nothing, so that this needs no batch number."""
    keys = sorted((row["network"], row["id"]) for row in deleted.collect())
    for start in range(0, len(keys), DELETIONS_AT_ONCE):
        by_network: dict[str, list[str]] = {}
        for network, post in keys[start : start + DELETIONS_AT_ONCE]:
            by_network.setdefault(network, []).append(post)
        for network, ids in by_network.items():
            listed = ", ".join(quoted(post) for post in ids)
            # Values are quoted: an id comes from a social network, where anybody writes.
            predicate = f"network = {quoted(network)} AND id IN ({listed})"
            DeltaTable(context.table("posts")).delete(predicate)


def quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def trends(windows: DataFrame, identity: BatchIdentity, context: Context) -> None:
    """In append mode a window comes whole, in one batch: only then is a rank a rank."""
    to_table(top_trends(windows, context.knobs.trends), context.table("trends"), identity)


def live_trends(windows: DataFrame, identity: BatchIdentity, context: Context) -> None:
    records = trend_records(windows).repartition(1)
    to_topic(records, context.knobs.trends_topic, context.kafka, identity)


def chat_stages(events: DataFrame, identity: BatchIdentity, context: Context) -> None:
    events.persist()
    try:
        rows = chat.stages(events).withColumn("date", F.to_date("event_time"))
        to_table(rows, context.table("chat_stages"), identity, ("date",))
        to_table(dead_letters(events), context.table("chat_dead"), identity)
    finally:
        events.unpersist()
