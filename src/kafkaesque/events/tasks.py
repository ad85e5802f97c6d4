"""Records of the tasks service: calls, timers, dead letters, results, and their topics.

A call is one JSON object. Everything that changes between attempts is in headers, so that the value of
a call is the same bytes from its first sending to its dead letter.

Topics of a queue `q`: `tasks.q`, its delays `tasks.q.retry.5s` and so on, its dead letters `tasks.q.dead`.
All queues share `tasks.timers`. This module holds values and their JSON: no client, clock or policy.
"""

from __future__ import annotations

import re
from typing import Final

import msgspec

from kafkaesque.events.envelope import EVENT_SIZE_BYTES_MAX
from kafkaesque.events.topics import TopicSpec
from kafkaesque.model.ids import TimestampMs

_HOUR_MS: Final = 3_600_000
_DAY_MS: Final = 24 * _HOUR_MS

TIERS_MS: Final = {"5s": 5_000, "1m": 60_000, "10m": 600_000, "1h": _HOUR_MS}
"""Delay tiers: a record of tier `1m` is due within a minute of being written. A longer delay than the
last tier becomes a timer."""

QUEUE_NAME: Final = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
"""No dots, which separate the parts of a topic name."""

ATTEMPT: Final = "attempt"
"""Header: the number of this attempt, from 1; absent on the first."""
DUE: Final = "due-ms"
"""Header: not before this time."""
TRACE: Final = "traceparent"
"""Header: W3C Trace Context."""
ORIGIN: Final = "origin"
"""Header: TOPIC/PARTITION/OFFSET of the call's first record."""
FIRST_FAILURE: Final = "first-failure-ms"
FAILURE: Final = "failure"
"""Header: class and message of the last exception."""
FIRED: Final = "fired"
"""Header of a timer's tombstone: the offset of the timer that fired, or `cancel`."""

DEAD_REASON: Final = "dead-reason"
DEAD_TRACE: Final = "dead-traceback"
DEAD_TIME: Final = "dead-ms"
DEAD_KEY: Final = "dead-key"
"""Header: the call's key, because the key of a dead letter identifies the letter."""

PLATFORM_HEADERS: Final = frozenset(
    {ATTEMPT, DUE, TRACE, ORIGIN, FIRST_FAILURE, FAILURE, FIRED, DEAD_REASON, DEAD_TRACE, DEAD_TIME,
     DEAD_KEY}
)  # fmt: skip
"""All other headers of a call are its sender's and stay with it, through retries and dead letters."""
OWN_HEADERS_BYTES_MAX: Final = 16 * 1024
"""Bound of the sender's headers: a dead letter, with its traceback, must still fit in a record."""


class MalformedTask(Exception):
    """Bytes that are not a valid call, timer or result; the message says why."""


class TaskMessage(msgspec.Struct, frozen=True, omit_defaults=True):
    """A call of a task, as stored in the log."""

    id: str
    task: str
    args: msgspec.Raw
    sent_ms: TimestampMs
    version: int = 1
    expires_ms: TimestampMs | None = None
    """The call is dropped after this time."""


class CronRule(msgspec.Struct, frozen=True, omit_defaults=True):
    """The schedule of a recurring timer."""

    expression: str
    timezone: str = "UTC"
    misfire: str = "once"
    after_ms: TimestampMs | None = None
    """The last handled occurrence; None in an application's declaration."""


class TimerMessage(msgspec.Struct, frozen=True, omit_defaults=True):
    """A call scheduled for a later time. The record key is the timer's id."""

    due_ms: TimestampMs
    topic: str
    message: msgspec.Raw
    key: str | None = None
    headers: dict[str, str] = {}
    cron: CronRule | None = None


class ResultMessage(msgspec.Struct, frozen=True, omit_defaults=True):
    """The result of a call whose task stores results. The record key is the call's id."""

    id: str
    task: str
    ok: bool
    ended_ms: TimestampMs
    value: msgspec.Raw = msgspec.Raw(b"null")
    failure: str | None = None


_encoder = msgspec.json.Encoder()
_tasks = msgspec.json.Decoder(TaskMessage)
_timers = msgspec.json.Decoder(TimerMessage)
_results = msgspec.json.Decoder(ResultMessage)
_DECODE_ERRORS = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


def encode_message(message: TaskMessage | TimerMessage | ResultMessage) -> bytes:
    """Raises MalformedTask if the message is too large for a Kafka with default settings."""
    data = _encoder.encode(message)
    if len(data) > EVENT_SIZE_BYTES_MAX:
        raise MalformedTask(
            f"the message takes {len(data)} bytes; at most {EVENT_SIZE_BYTES_MAX} are allowed"
        )
    return data


def decode_task(data: bytes | None) -> TaskMessage:
    if data is None:
        raise MalformedTask("not a call: the record has no value")
    try:
        return _tasks.decode(data)
    except _DECODE_ERRORS as error:
        raise MalformedTask(f"not a call: {error}") from None


def decode_timer(data: bytes) -> TimerMessage:
    try:
        return _timers.decode(data)
    except _DECODE_ERRORS as error:
        raise MalformedTask(f"not a timer: {error}") from None


def decode_result(data: bytes | None) -> ResultMessage:
    try:
        return _results.decode(data or b"")
    except _DECODE_ERRORS as error:
        raise MalformedTask(f"not a result: {error}") from None


PARTITIONS: Final = 8


def queue_topic(queue: str) -> str:
    return f"tasks.{queue}"


def tier_topic(queue: str, tier: str) -> str:
    return f"tasks.{queue}.retry.{tier}"


def dead_topic(queue: str) -> str:
    return f"tasks.{queue}.dead"


def queue_of(topic: str) -> str:
    """The queue of a topic of calls or delayed calls."""
    return topic.split(".")[1]


def tier_of(topic: str) -> str | None:
    """The tier of a topic of delayed calls; None for any other topic."""
    parts = topic.split(".")
    return parts[3] if len(parts) == 4 and parts[2] == "retry" else None


def queue_topics(queue: str, partitions: int = PARTITIONS) -> list[TopicSpec]:
    """The topics of a queue: calls, delayed calls, dead letters."""
    week = {"retention.ms": str(7 * _DAY_MS)}
    delays = [
        TopicSpec(
            tier_topic(queue, tier), partitions, "as in the queue",
            f"Calls of queue {queue} that wait up to {tier} for their next attempt.", week,
        )
        for tier in TIERS_MS
    ]  # fmt: skip
    return [
        TopicSpec(
            queue_topic(queue), partitions, "the call's key, or none",
            f"Calls of queue {queue}; calls of one key run one after the other.", week,
        ),
        *delays,
        TopicSpec(
            dead_topic(queue), 1, "TOPIC/PARTITION/OFFSET that failed",
            f"Calls of queue {queue} that failed for good, until redriven or dropped.",
            {"cleanup.policy": "compact", "segment.ms": str(_DAY_MS)},
        ),
    ]  # fmt: skip


TIMERS = TopicSpec(
    name="tasks.timers",
    partitions=4,
    key="TIMER ID",
    doc="Calls scheduled for a later time; a tombstone ends a timer. Must not be resized.",
    configs={"cleanup.policy": "compact", "segment.ms": str(_HOUR_MS)},
)
OWNER_KEY: Final = "!owner/"
"""Key prefix of the marker that each new owner of a timer partition writes."""
TIMERS_DEAD: Final = TopicSpec(
    name="tasks.timers.dead",
    partitions=1,
    key="TOPIC/PARTITION/OFFSET that failed",
    doc="Timers that could not be decoded.",
    configs={"cleanup.policy": "compact", "segment.ms": str(_DAY_MS)},
)
TOMBSTONES_KEPT_MS: Final = _DAY_MS
"""Kafka's default `delete.retention.ms`: a reader that has not read the timers for longer may have missed
tombstones."""

RELAYS = TopicSpec(
    name="tasks.relays",
    partitions=1,
    key="RELAY NAME",
    doc="The last batch that each relay copied from a database outbox to the log.",
    configs={"cleanup.policy": "compact", "segment.ms": str(_HOUR_MS)},
)


def results_topic(app: str) -> TopicSpec:
    return TopicSpec(
        f"tasks.{app}.results", 4, "CALL ID", f"Results of calls of {app}, for tasks that store them.",
        {"retention.ms": str(_DAY_MS)},
    )  # fmt: skip


CHAT_METRICS = TopicSpec(
    name="chat.metrics",
    partitions=4,
    key="MINUTE/STAGE",
    doc="Metric deltas: one for each stage of each message, exactly once. Their sum is the metric.",
    configs={"retention.ms": str(7 * _DAY_MS)},
)
