"""Calls into records: what `send`, `send_at` and `cancel` write. Pure; time and identifiers are given."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import msgspec

from kafkaesque.client.ports import Headers, Record
from kafkaesque.events import tasks as words
from kafkaesque.events.tasks import CronRule, MalformedTask, TaskMessage, TimerMessage
from kafkaesque.model.ids import TimestampMs
from kafkaesque.tasks.errors import TaskRefused
from kafkaesque.tasks.rules.call import headers_bytes
from kafkaesque.tasks.task import Declared
from kafkaesque.tasks.trace import Span

TIMER_AHEAD_MS_MAX = 10 * 366 * 24 * 3_600_000
"""Ten years: a time beyond that is a mistake in units."""
ID_LENGTH_MAX = 512


@dataclass(frozen=True, slots=True)
class Options:
    """What a caller may say about one call beyond its arguments."""

    id: str | None = None
    key: str | None = None
    expires_s: float | None = None
    headers: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Composed:
    """A call that has everything but a way to the log."""

    id: str
    topic: str
    key: str | None
    value: bytes
    headers: Headers
    sent_ms: TimestampMs

    def record(self) -> Record:
        return Record(
            topic=self.topic,
            key=None if self.key is None else self.key.encode(),
            value=self.value,
            headers=self.headers,
            timestamp_ms=self.sent_ms,
        )

    def timer(self, due_ms: int, cron: CronRule | None = None) -> Record:
        """The record that holds this call until `due_ms`; the timer's id is the call's."""
        if not 0 <= due_ms <= self.sent_ms + TIMER_AHEAD_MS_MAX:
            raise TaskRefused(f"{due_ms} ms since 1970 is no time within the next ten years")
        headers = {name: (value or b"").decode() for name, value in self.headers}
        message = TimerMessage(
            TimestampMs(due_ms), self.topic, msgspec.Raw(self.value), self.key, headers, cron
        )
        return Record(
            topic=words.TIMERS.name,
            key=self.id.encode(),
            value=_encoded(message),
            timestamp_ms=self.sent_ms,
        )


def compose(
    task: Declared, named: dict[str, Any], options: Options, given: tuple[str, Span, TimestampMs]
) -> Composed:
    """`given`: an id to use if the options name none, the span that sends, the time."""
    fresh_id, span, now_ms = given
    call_id = fresh_id if options.id is None else options.id
    if not 0 < len(call_id) <= ID_LENGTH_MAX:
        raise TaskRefused(f"an id has 1 to {ID_LENGTH_MAX} characters")
    if call_id.startswith("!"):
        raise TaskRefused("ids that begin with ! are the platform's own")
    expires_s = options.expires_s if options.expires_s is not None else task.policy.expires_s
    message = TaskMessage(
        id=call_id,
        task=task.name,
        args=msgspec.Raw(task.arguments.encode(named)),
        sent_ms=now_ms,
        version=task.policy.version,
        expires_ms=None if expires_s is None else TimestampMs(now_ms + round(expires_s * 1000)),
    )
    return Composed(
        id=call_id,
        topic=words.queue_topic(task.policy.queue),
        key=options.key if options.key is not None else task.key_of(named),
        value=_encoded(message),
        headers=((words.TRACE, span.header()), *_own_headers(options)),
        sent_ms=now_ms,
    )


def cancellation(timer_id: str, now_ms: TimestampMs) -> Record:
    """A tombstone: the timer does not fire, unless it already has."""
    return Record(
        topic=words.TIMERS.name,
        key=timer_id.encode(),
        value=None,
        headers=((words.FIRED, b"cancel"),),
        timestamp_ms=now_ms,
    )


def time_ms(when: datetime | int) -> int:
    """Milliseconds since the epoch; a datetime without zone is refused, since it may mean any."""
    if isinstance(when, int):
        return when
    if when.tzinfo is None:
        raise TaskRefused("a time needs its zone: datetime.now(UTC), not datetime.now()")
    return round(when.timestamp() * 1000)


_RESERVED = frozenset(
    {words.ATTEMPT, words.DUE, words.TRACE, words.ORIGIN, words.FIRST_FAILURE, words.FAILURE}
)


def _own_headers(options: Options) -> Headers:
    taken = _RESERVED & options.headers.keys()
    if taken:
        raise TaskRefused(f"header {min(taken)!r} is not yours to set")
    own = tuple((name, value.encode()) for name, value in options.headers.items())
    size_bytes = headers_bytes(own)
    if size_bytes > words.OWN_HEADERS_BYTES_MAX:
        raise TaskRefused(f"the headers take {size_bytes} bytes of {words.OWN_HEADERS_BYTES_MAX}")
    return own


def _encoded(message: TaskMessage | TimerMessage) -> bytes:
    try:
        return words.encode_message(message)
    except MalformedTask as error:
        raise TaskRefused(f"the call cannot be sent: {error}") from None
