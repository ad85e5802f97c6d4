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

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from kafkaesque.pipeline.sinks.delta_table import BatchIdentity

OutputMode = Literal["append", "update"]
POSTS_TOPIC = "social.posts"


@dataclass(frozen=True, slots=True)
class Table:
    """A table that a query writes."""

    name: str
    partition_by: tuple[str, ...] = ()
    start_time: str | None = None
    """For a table without offsets: the columns that say which time a row is about."""
    end_time: str | None = None

    @property
    def has_offsets(self) -> bool:
        return self.start_time is None


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
    options: Mapping[str, str] = field(default_factory=dict)

    def subscription(self, knobs: Knobs) -> dict[str, str]:
        if self.is_pattern:
            return {"subscribePattern": knobs.archive_pattern, **self.options}
        return {"subscribe": self.topics, **self.options}


def find(name: str) -> Query:
    queries = catalog()
    if name not in queries:
        raise PipelineError(f"there is no query '{name}'", f"there are {', '.join(queries)}")
    return queries[name]


def catalog() -> dict[str, Query]:
    """All queries by name. Imports Spark, so it is a function."""
    return {query.name: query for query in [*_social(), *_chat(), _archive()]}


def _social() -> list[Query]:
    from kafkaesque.pipeline.operate import outputs, streams

    return [
        Query(
            "posts",
            "Posts, clean and each once, into a table; deleted ones are taken out again.",
            POSTS_TOPIC,
            streams.posts,
            outputs.posts,
            (Table("posts", ("date",)), Table("posts_dead")),
        ),
        Query(
            "trends",
            "Top hashtags of each window, once it is complete, into a table.",
            POSTS_TOPIC,
            streams.hashtags,
            outputs.trends,
            (Table("trends", (), "window_start", "window_end"),),
        ),
        Query(
            "trends-live",
            "Every change of a hashtag's count into the topic that the console shows.",
            POSTS_TOPIC,
            streams.hashtags,
            outputs.live_trends,
            mode="update",
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
            (Table("chat_minutes", (), "minute", "minute"),),
        ),
        Query(
            "chat-latency",
            "Delivery and read latency of each minute.",
            TOPIC,
            streams.chat_latency,
            outputs.only_table("chat_latency"),
            (Table("chat_latency", (), "minute", "minute"),),
        ),
        Query(
            "chat-sessions",
            "Stretches of talk in each conversation.",
            TOPIC,
            streams.chat_sessions,
            outputs.only_table("chat_sessions"),
            (Table("chat_sessions", (), "started_at", "last_message_at"),),
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
