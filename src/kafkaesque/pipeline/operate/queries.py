"""The named queries: what each one reads, how it transforms the records, and where it writes them.

Adding a query means adding an entry to `all_queries`. Rules about rows are in `jobs/`; starting,
stopping and supervising queries is in `streaming.py`.

Spark repeats a batch after a failure, so every `write` function may be called again with the same
batch. A batch that goes to several sinks is safe because each sink records which batches it has: a
crash between two sinks neither loses nor duplicates rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from deltalake import DeltaTable
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from kafkaesque.pipeline.errors import PipelineError
from kafkaesque.pipeline.jobs import chat
from kafkaesque.pipeline.jobs.archive import PARTITION_BY, archive_rows
from kafkaesque.pipeline.jobs.envelopes import dead_letters
from kafkaesque.pipeline.jobs.posts import (
    clean_posts,
    deletions,
    first_occurrences,
    parse_posts,
    without_deleted,
    without_known,
)
from kafkaesque.pipeline.jobs.trends import hashtag_windows, top_trends, trend_records
from kafkaesque.pipeline.operate.context import PipelineContext, PipelineSettings
from kafkaesque.pipeline.sinks.delta_table import (
    BatchIdentity,
    is_committed,
    open_table,
    read_table,
)
from kafkaesque.pipeline.sinks.writing import to_table, to_topic

OutputMode = Literal["append", "update"]
Transform = Callable[[DataFrame, PipelineSettings], DataFrame]
Write = Callable[[DataFrame, BatchIdentity, PipelineContext], None]
Reconcile = Callable[[PipelineContext, PipelineContext, str | None, DataFrame | None], None]
"""(side tables, live tables, predicate of the range, records after the range)"""

POSTS_TOPIC = "social.posts"
DELETIONS_AT_ONCE = 500
"""Ids in one Delta predicate; more are deleted in several commits."""


@dataclass(frozen=True, slots=True)
class WindowColumns:
    """The columns of a table whose rows are windows of event time, and how long each stays open."""

    start: str
    end: str
    newest: str
    """A column whose maximum is not after the newest event."""
    late_s: Callable[[PipelineSettings], int]
    tail_s: Callable[[PipelineSettings], int] = lambda _settings: 0
    """How long after `end` a row still accepts events: a minute's own length, a session's gap."""
    lead_s: Callable[[PipelineSettings], int] = lambda _settings: 0
    """How long before `start` an event would have changed the row."""


@dataclass(frozen=True, slots=True)
class Table:
    """A table that a query writes."""

    name: str
    partition_by: tuple[str, ...] = ()
    windows: WindowColumns | None = None
    """Set for a table whose rows have no offsets but cover windows of event time."""


@dataclass(frozen=True, slots=True)
class Query:
    """A streaming query with a name and a checkpoint of its own."""

    name: str
    doc: str
    topics: str
    transform: Transform
    write: Write
    tables: Sequence[Table] = ()
    mode: OutputMode = "append"
    is_pattern: bool = False
    writes_trends: bool = False
    reconcile: Reconcile | None = None
    """Adjusts the side tables of a backfill to the rest of the log before they are swapped in."""
    options: Mapping[str, str] = field(default_factory=dict)

    def subscription(self, settings: PipelineSettings) -> dict[str, str]:
        """The options of the source that select the topics."""
        if self.is_pattern:
            return {"subscribePattern": settings.archive_pattern, **self.options}
        return {"subscribe": self.topics, **self.options}

    def topic_names(self, settings: PipelineSettings) -> list[str]:
        """The topics that must exist before the query starts: those it reads by name or writes."""
        read = [] if self.is_pattern else self.topics.split(",")
        return [*read, *([settings.trends_topic] if self.writes_trends else [])]


SETS: Mapping[str, Sequence[str]] = {
    "light": ("posts", "trends-live", "chat-stages"),
    "social": ("posts", "trends", "trends-live"),
    "chat": ("chat-stages", "chat-minutes", "chat-latency", "chat-sessions"),
}
"""Names for several queries. `kafkaesque up` runs `light` in one small process."""


def expand(names: Sequence[str]) -> list[str]:
    """Replaces sets by their queries; each query appears once."""
    return list(dict.fromkeys(item for name in names for item in SETS.get(name, (name,))))


def find_query(name: str) -> Query:
    queries = all_queries()
    if name not in queries:
        known = ", ".join([*queries, *SETS])
        raise PipelineError(f"there is no query '{name}'", f"queries and sets: {known}")
    return queries[name]


def all_queries() -> dict[str, Query]:
    return {query.name: query for query in [*_social_queries(), *_chat_queries(), _archive_query()]}


def _social_queries() -> list[Query]:
    windows = WindowColumns(
        "window_start", "window_end", "window_start", lambda settings: settings.trends_late_s
    )
    return [
        Query(
            "posts",
            "Clean posts, each once, into a table; deleted posts are removed from it.",
            POSTS_TOPIC,
            lambda records, _: parse_posts(records),
            write_posts,
            (Table("posts", ("date",)), Table("posts_dead")),
            reconcile=reconcile_posts,
        ),
        Query(
            "trends",
            "Top hashtags of each complete window into a table.",
            POSTS_TOPIC,
            _hashtag_windows,
            write_trends,
            (Table("trends", windows=windows),),
        ),
        Query(
            "trends-live",
            "Every change of a hashtag's count into the topic that the console shows.",
            POSTS_TOPIC,
            _hashtag_windows,
            write_live_trends,
            mode="update",
            writes_trends=True,
        ),
    ]


def _chat_queries() -> list[Query]:
    minutes = WindowColumns(
        "minute", "minute", "minute", lambda settings: settings.late_s, tail_s=lambda _: 60
    )
    sessions = WindowColumns(
        "started_at",
        "last_message_at",
        "last_message_at",
        lambda settings: settings.late_s,
        tail_s=lambda settings: settings.session_gap_s,
        lead_s=lambda settings: settings.session_gap_s,
    )
    return [
        Query(
            "chat-stages",
            "The stages of each message with their times; the source of backlog and unread.",
            chat.TOPIC,
            lambda records, _: chat.parse_chat(records),
            write_chat_stages,
            (Table("chat_stages", ("date",)), Table("chat_dead")),
        ),
        Query(
            "chat-minutes",
            "Messages, active users and conversations of each minute.",
            chat.TOPIC,
            lambda records, settings: chat.per_minute(_stages(records), settings.late_s),
            _write_to("chat_minutes"),
            (Table("chat_minutes", windows=minutes),),
        ),
        Query(
            "chat-latency",
            "Delivery and read latency of each minute.",
            chat.TOPIC,
            lambda records, settings: chat.latencies(_stages(records), settings.late_s),
            _write_to("chat_latency"),
            (Table("chat_latency", windows=minutes),),
        ),
        Query(
            "chat-sessions",
            "Sessions of each conversation: stretches without a long silence.",
            chat.TOPIC,
            lambda records, settings: chat.sessions(
                _stages(records), settings.session_gap_s, settings.late_s
            ),
            _write_to("chat_sessions"),
            (Table("chat_sessions", windows=sessions),),
        ),
    ]


def _archive_query() -> Query:
    return Query(
        "archive",
        "Every record of every topic, byte for byte, into one table.",
        "",
        lambda records, _: archive_rows(records),
        _write_to("archive", PARTITION_BY),
        (Table("archive", PARTITION_BY),),
        is_pattern=True,
        options={"includeHeaders": "true"},
    )


def _hashtag_windows(records: DataFrame, settings: PipelineSettings) -> DataFrame:
    return hashtag_windows(clean_posts(parse_posts(records)), settings.trends)


def _stages(records: DataFrame) -> DataFrame:
    return chat.stages(chat.parse_chat(records))


def _write_to(name: str, partition_by: Sequence[str] = ()) -> Write:
    """A `write` that appends all rows to one table."""

    def write(rows: DataFrame, identity: BatchIdentity, context: PipelineContext) -> None:
        to_table(rows, context.table(name), identity, partition_by)

    return write


def write_posts(events: DataFrame, identity: BatchIdentity, context: PipelineContext) -> None:
    """Appends new posts and dead letters, then removes deleted posts."""
    path = context.table("posts")
    events.persist()
    try:
        deleted = deletions(events)
        if not is_committed(path, identity):
            fresh = first_occurrences(clean_posts(events))
            if open_table(path) is not None:
                rows = fresh.select("date").distinct().collect()
                dates = [row["date"] for row in rows if row["date"] is not None]
                known = read_table(context.spark, path, {"date": dates})
                fresh = without_known(fresh, known)
            to_table(without_deleted(fresh, deleted), path, identity, ("date",))
        to_table(dead_letters(events), context.table("posts_dead"), identity)
        delete_posts(context, deleted)
    finally:
        events.unpersist()


def delete_posts(context: PipelineContext, deleted: DataFrame) -> None:
    """Removes deleted posts from the table. Idempotent, so it needs no batch number."""
    keys = sorted((row["network"], row["id"]) for row in deleted.collect())
    for start in range(0, len(keys), DELETIONS_AT_ONCE):
        by_network: dict[str, list[str]] = {}
        for network, post in keys[start : start + DELETIONS_AT_ONCE]:
            by_network.setdefault(network, []).append(post)
        for network, ids in by_network.items():
            listed = ", ".join(_quote(post) for post in ids)
            # Ids come from a social network, so anybody may have chosen them: quote them.
            predicate = f"network = {_quote(network)} AND id IN ({listed})"
            DeltaTable(context.table("posts")).delete(predicate)


def reconcile_posts(
    side: PipelineContext, live: PipelineContext, in_range: str | None, later: DataFrame | None
) -> None:
    """Removes posts from `side` that `live` has outside the range or that were deleted `later`.

    A range of the log lacks its surroundings: without this, a post that appears before the range and
    again inside it would be duplicated by the swap, and a post deleted after it would come back.
    """
    path = side.table("posts")
    if open_table(path) is None:
        return
    if in_range is not None and open_table(live.table("posts")) is not None:
        elsewhere = read_table(live.spark, live.table("posts")).where(~F.expr(in_range))
        mine = read_table(side.spark, path).select("event_id")
        known = mine.join(elsewhere.select("event_id"), on="event_id", how="left_semi")
        _delete_events(side, sorted(row["event_id"] for row in known.distinct().collect()))
    if later is not None:
        delete_posts(side, deletions(parse_posts(later)))


def _delete_events(side: PipelineContext, events: list[str]) -> None:
    for start in range(0, len(events), DELETIONS_AT_ONCE):
        listed = ", ".join(_quote(event) for event in events[start : start + DELETIONS_AT_ONCE])
        DeltaTable(side.table("posts")).delete(f"event_id IN ({listed})")


def _quote(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def write_trends(windows: DataFrame, identity: BatchIdentity, context: PipelineContext) -> None:
    """Ranks the hashtags of each window. In append mode a batch holds each window completely."""
    to_table(top_trends(windows, context.settings.trends), context.table("trends"), identity)


def write_live_trends(
    windows: DataFrame, identity: BatchIdentity, context: PipelineContext
) -> None:
    records = trend_records(windows).repartition(1)
    to_topic(records, context.settings.trends_topic, context.kafka, identity)


def write_chat_stages(events: DataFrame, identity: BatchIdentity, context: PipelineContext) -> None:
    events.persist()
    try:
        rows = chat.stages(events).withColumn("date", F.to_date("event_time"))
        to_table(rows, context.table("chat_stages"), identity, ("date",))
        to_table(dead_letters(events), context.table("chat_dead"), identity)
    finally:
        events.unpersist()
