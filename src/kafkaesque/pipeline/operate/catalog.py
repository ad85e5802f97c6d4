"""The named queries: what each reads, what it makes of it, where that goes.

To add one is to add an entry here. Rules about rows are `jobs/`'s; how a query is started, stopped
and watched is `running.py`'s.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from kafkaesque.pipeline.errors import PipelineError
from kafkaesque.pipeline.operate.context import Context, Knobs
from kafkaesque.pipeline.operate.coverage import Windows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from kafkaesque.pipeline.sinks.delta_table import BatchIdentity

OutputMode = Literal["append", "update"]
Settle = Callable[[Context, Context, "str | None", "DataFrame | None"], None]
"""(side, live, predicate of the range, records after the range)"""
POSTS_TOPIC = "social.posts"


@dataclass(frozen=True, slots=True)
class Table:
    """A table that a query writes."""

    name: str
    partition_by: tuple[str, ...] = ()
    windows: Windows | None = None
    """For a table whose rows have no offsets: which time each is about."""


@dataclass(frozen=True, slots=True)
class Query:
    """A stream that runs under its name, with one checkpoint."""

    name: str
    doc: str
    topics: str
    transform: Callable[[DataFrame, Knobs], DataFrame]
    write: Callable[[DataFrame, BatchIdentity, Context], None]
    tables: Sequence[Table] = ()
    mode: OutputMode = "append"
    is_pattern: bool = False
    writes_trends: bool = False
    settle: Settle | None = None
    """What a backfill must still do to its side tables before they are swapped in."""
    options: Mapping[str, str] = field(default_factory=dict)

    def subscription(self, knobs: Knobs) -> dict[str, str]:
        if self.is_pattern:
            return {"subscribePattern": knobs.archive_pattern, **self.options}
        return {"subscribe": self.topics, **self.options}

    def topic_names(self, knobs: Knobs) -> list[str]:
        """What must be there before it starts: topics it reads by name, topics it writes."""
        read = [] if self.is_pattern else self.topics.split(",")
        return [*read, *([knobs.trends_topic] if self.writes_trends else [])]


_TREND_WINDOWS = Windows(
    "window_start", "window_end", "window_start", lambda knobs: knobs.trends_late_s
)
_MINUTES = Windows(
    "minute", "minute", "minute", lambda knobs: knobs.late_s, tail_s=lambda _knobs: 60
)
_SESSIONS = Windows(
    "started_at",
    "last_message_at",
    "last_message_at",
    lambda knobs: knobs.late_s,
    tail_s=lambda knobs: knobs.session_gap_s,
    lead_s=lambda knobs: knobs.session_gap_s,
)

SETS: Mapping[str, Sequence[str]] = {
    "light": ("posts", "trends-live", "chat-stages"),
    "social": ("posts", "trends", "trends-live"),
    "chat": ("chat-stages", "chat-minutes", "chat-latency", "chat-sessions"),
}
"""Names for several queries: `light` is what `kafkaesque up` runs in one small process."""


def expand(names: Sequence[str]) -> list[str]:
    """Sets replaced by their queries, each query once."""
    return list(dict.fromkeys(item for name in names for item in SETS.get(name, (name,))))


def find(name: str) -> Query:
    queries = catalog()
    if name not in queries:
        known = ", ".join([*queries, *SETS])
        raise PipelineError(f"there is no query '{name}'", f"there are {known}")
    return queries[name]


def catalog() -> dict[str, Query]:
    """All queries by name. Imports Spark, so it is a function."""
    return {query.name: query for query in [*_social(), *_chat(), _archive()]}


def _social() -> list[Query]:
    from kafkaesque.pipeline.operate import outputs, settling, streams

    return [
        Query(
            "posts",
            "Posts, clean and each once, into a table; deleted ones are taken out again.",
            POSTS_TOPIC,
            streams.posts,
            outputs.posts,
            (Table("posts", ("date",)), Table("posts_dead")),
            settle=settling.settle_posts,
        ),
        Query(
            "trends",
            "Top hashtags of each window, once it is complete, into a table.",
            POSTS_TOPIC,
            streams.hashtags,
            outputs.trends,
            (Table("trends", windows=_TREND_WINDOWS),),
        ),
        Query(
            "trends-live",
            "Every change of a hashtag's count into the topic that the console shows.",
            POSTS_TOPIC,
            streams.hashtags,
            outputs.live_trends,
            mode="update",
            writes_trends=True,
        ),
    ]


def _chat() -> list[Query]:
    from kafkaesque.pipeline.jobs.chat import TOPIC
    from kafkaesque.pipeline.operate import outputs, streams

    return [
        Query(
            "chat-stages",
            "What happened to each message, when; the source of backlog and unread.",
            TOPIC,
            streams.chat_events,
            outputs.chat_stages,
            (Table("chat_stages", ("date",)), Table("chat_dead")),
        ),
        Query(
            "chat-minutes",
            "Messages, people and conversations of each minute.",
            TOPIC,
            streams.chat_minutes,
            outputs.only_table("chat_minutes"),
            (Table("chat_minutes", windows=_MINUTES),),
        ),
        Query(
            "chat-latency",
            "Delivery and read latency of each minute.",
            TOPIC,
            streams.chat_latency,
            outputs.only_table("chat_latency"),
            (Table("chat_latency", windows=_MINUTES),),
        ),
        Query(
            "chat-sessions",
            "Stretches of talk in each conversation.",
            TOPIC,
            streams.chat_sessions,
            outputs.only_table("chat_sessions"),
            (Table("chat_sessions", windows=_SESSIONS),),
        ),
    ]


def _archive() -> Query:
    from kafkaesque.pipeline.jobs.archive import PARTITION_BY
    from kafkaesque.pipeline.operate import outputs, streams

    return Query(
        "archive",
        "Every record of every topic, byte for byte, into one table.",
        "",
        streams.archive,
        outputs.archive,
        (Table("archive", PARTITION_BY),),
        is_pattern=True,
        options={"includeHeaders": "true"},
    )
