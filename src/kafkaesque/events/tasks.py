"""What tasks write to the log: calls, timers, dead letters, results, and the topics they stand in.

A call is one JSON object; whatever changes from attempt to attempt stands in headers, so that the value
of a call is the same bytes from its first sending to its dead letter.

Topics of a queue `q`: `tasks.q`, its delays `tasks.q.retry.5s` and so on, its dead letters `tasks.q.dead`.
All queues share `tasks.timers`. Lives here: the words and their JSON. No client, no clock, no policy.
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
"""Delayed topics by name: a record of tier `1m` is due within a minute of being written. What is to
wait longer than the last becomes a timer."""

QUEUE_NAME: Final = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
"""No dots: they separate the parts of a topic's name."""

ATTEMPT: Final = "attempt"
"""Header: which attempt this record is, from 1; absent: the first."""
DUE: Final = "due-ms"
"""Header: not before this time."""
TRACE: Final = "traceparent"
"""Header: W3C Trace Context."""
ORIGIN: Final = "origin"
"""Header: TOPIC/PARTITION/OFFSET at which the call first stood in the log."""
FIRST_FAILURE: Final = "first-failure-ms"
FAILURE: Final = "failure"
"""Header: class and text of the last exception."""
FIRED: Final = "fired"
"""Header of a timer's tombstone: offset of the record that fired, or `cancel`."""

DEAD_REASON: Final = "dead-reason"
DEAD_TRACE: Final = "dead-traceback"
DEAD_TIME: Final = "dead-ms"
DEAD_KEY: Final = "dead-key"
"""Header: the key that the call had, since the key of a dead letter names the letter."""


class MalformedTask(Exception):
    """Bytes that are no call, timer or result. The text says what is wrong with them."""


class TaskMessage(msgspec.Struct, frozen=True, omit_defaults=True):
    """A call of a task, as it stands in the log."""

    id: str
    task: str
    args: msgspec.Raw
    sent_ms: TimestampMs
    version: int = 1
    expires_ms: TimestampMs | None = None
    """Not worth doing after this."""


class CronRule(msgspec.Struct, frozen=True, omit_defaults=True):
    """A timer that comes again."""

    expression: str
    timezone: str = "UTC"
    misfire: str = "once"
    after_ms: TimestampMs | None = None
    """The occurrence that was handled last; None as an application declares it."""


class TimerMessage(msgspec.Struct, frozen=True, omit_defaults=True):
    """A call that waits for its time; the key of its record is the timer's id."""

    due_ms: TimestampMs
    topic: str
    message: msgspec.Raw
    key: str | None = None
    headers: dict[str, str] = {}
    cron: CronRule | None = None


class ResultMessage(msgspec.Struct, frozen=True, omit_defaults=True):
    """What became of a call whose task keeps results; the key of its record is the call's id."""

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
_REFUSALS = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


def encode_message(message: TaskMessage | TimerMessage | ResultMessage) -> bytes:
    """MalformedTask if it is too large for any Kafka with default settings."""
    data = _encoder.encode(message)
    if len(data) > EVENT_SIZE_BYTES_MAX:
        raise MalformedTask(f"it takes {len(data)} bytes of {EVENT_SIZE_BYTES_MAX}")
    return data


def decode_task(data: bytes | None) -> TaskMessage:
    if data is None:
        raise MalformedTask("not a call: the record has no value")
    try:
        return _tasks.decode(data)
    except _REFUSALS as error:
        raise MalformedTask(f"not a call: {error}") from None


def decode_timer(data: bytes) -> TimerMessage:
    try:
        return _timers.decode(data)
    except _REFUSALS as error:
        raise MalformedTask(f"not a timer: {error}") from None


def decode_result(data: bytes | None) -> ResultMessage:
    try:
        return _results.decode(data or b"")
    except _REFUSALS as error:
        raise MalformedTask(f"not a result: {error}") from None


PARTITIONS: Final = 8


def queue_topic(queue: str) -> str:
    return f"tasks.{queue}"


def tier_topic(queue: str, tier: str) -> str:
    return f"tasks.{queue}.retry.{tier}"


def dead_topic(queue: str) -> str:
    return f"tasks.{queue}.dead"


def queue_of(topic: str) -> str:
    """The queue that a topic of calls or delays belongs to."""
    return topic.split(".")[1]


def tier_of(topic: str) -> str | None:
    """The tier of a delayed topic; None for any other."""
    parts = topic.split(".")
    return parts[3] if len(parts) == 4 and parts[2] == "retry" else None


def queue_topics(queue: str, partitions: int = PARTITIONS) -> list[TopicSpec]:
    """All that a queue needs: calls, delays, dead letters."""
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
            f"Calls of queue {queue} that were given up, until redriven or dropped.",
            {"cleanup.policy": "compact", "segment.ms": str(_DAY_MS)},
        ),
    ]  # fmt: skip


TIMERS = TopicSpec(
    name="tasks.timers",
    partitions=4,
    key="TIMER ID",
    doc="Calls that wait for their time; a tombstone ends one. Never resized.",
    configs={"cleanup.policy": "compact", "segment.ms": str(_HOUR_MS)},
)
OWNER_KEY: Final = "!owner/"
"""Beginning of the key under which each new owner of a partition of the timers leaves a mark."""
TIMERS_DEAD: Final = TopicSpec(
    name="tasks.timers.dead",
    partitions=1,
    key="TOPIC/PARTITION/OFFSET that failed",
    doc="Timers that could not be read.",
    configs={"cleanup.policy": "compact", "segment.ms": str(_DAY_MS)},
)
TOMBSTONES_KEPT_MS: Final = _DAY_MS
"""Kafka's default of `delete.retention.ms`: whoever has not read the timers for longer may have missed
tombstones."""

RELAYS = TopicSpec(
    name="tasks.relays",
    partitions=1,
    key="RELAY NAME",
    doc="The last batch that each relay brought from a database's outbox to the log.",
    configs={"cleanup.policy": "compact", "segment.ms": str(_HOUR_MS)},
)


def results_topic(app: str) -> TopicSpec:
    return TopicSpec(
        f"tasks.{app}.results", 4, "CALL ID", f"What became of calls of {app} that keep results.",
        {"retention.ms": str(_DAY_MS)},
    )  # fmt: skip


CHAT_METRICS = TopicSpec(
    name="chat.metrics",
    partitions=4,
    key="MINUTE/STAGE",
    doc="Deltas: one for each stage of each message, exactly once. Their sum is the metric.",
    configs={"retention.ms": str(7 * _DAY_MS)},
)
