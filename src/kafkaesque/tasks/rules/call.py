"""A call of a task as a record: composed by its caller, read by a worker.

Time and identifiers are arguments.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import msgspec

from kafkaesque.client.ports import Headers, Received, Record
from kafkaesque.events import tasks as protocol
from kafkaesque.events.tasks import CronRule, MalformedTask, TaskMessage, TimerMessage
from kafkaesque.model.ids import NO_TIMESTAMP, Offset, TimestampMs, TopicPartition
from kafkaesque.tasks.errors import TaskRefused
from kafkaesque.tasks.rules.task import DeclaredTask
from kafkaesque.tasks.rules.trace_context import TraceSpan, parse_trace

TIMER_AHEAD_MS_MAX = 10 * 366 * 24 * 3_600_000
"""Ten years: a later time is a mistake in units."""
ID_LENGTH_MAX = 512
ATTEMPTS_MAX = 1_000_000

# -- the caller's side -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CallOptions:
    """What a caller may set for one call, besides its arguments."""

    id: str | None = None
    key: str | None = None
    expires_s: float | None = None
    headers: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ComposedCall:
    """A call that is ready to be written, now or as a timer."""

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
        """The record that holds this call until `due_ms`; the timer has the call's id."""
        if not 0 <= due_ms <= self.sent_ms + TIMER_AHEAD_MS_MAX:
            raise TaskRefused(f"{due_ms} ms since 1970 is not within the next ten years")
        headers = {name: (value or b"").decode() for name, value in self.headers}
        message = TimerMessage(
            TimestampMs(due_ms), self.topic, msgspec.Raw(self.value), self.key, headers, cron
        )
        return Record(
            topic=protocol.TIMERS.name,
            key=self.id.encode(),
            value=_encoded(message),
            timestamp_ms=self.sent_ms,
        )


def compose(
    task: DeclaredTask,
    arguments: dict[str, Any],
    options: CallOptions,
    *,
    fresh_id: str,
    span: TraceSpan,
    now_ms: TimestampMs,
) -> ComposedCall:
    """`fresh_id` is used if the options set no id; `span` is the span that sends the call."""
    call_id = fresh_id if options.id is None else options.id
    if not 0 < len(call_id) <= ID_LENGTH_MAX:
        raise TaskRefused(f"an id has 1 to {ID_LENGTH_MAX} characters")
    if call_id.startswith("!"):
        raise TaskRefused("ids that begin with ! are reserved for the platform")
    expires_s = options.expires_s if options.expires_s is not None else task.policy.expires_s
    message = TaskMessage(
        id=call_id,
        task=task.name,
        args=msgspec.Raw(task.arguments.encode(arguments)),
        sent_ms=now_ms,
        version=task.policy.version,
        expires_ms=None if expires_s is None else TimestampMs(now_ms + round(expires_s * 1000)),
    )
    return ComposedCall(
        id=call_id,
        topic=protocol.queue_topic(task.policy.queue),
        key=options.key if options.key is not None else task.key_of(arguments),
        value=_encoded(message),
        headers=((protocol.TRACE, span.header()), *_checked_headers(options)),
        sent_ms=now_ms,
    )


def cancellation(timer_id: str, now_ms: TimestampMs) -> Record:
    """A tombstone: the timer does not fire, unless it already has."""
    return Record(
        topic=protocol.TIMERS.name,
        key=timer_id.encode(),
        value=None,
        headers=((protocol.FIRED, b"cancel"),),
        timestamp_ms=now_ms,
    )


def time_ms(when: datetime | int) -> int:
    """Milliseconds since the epoch. A datetime without a time zone is refused: it is ambiguous."""
    if isinstance(when, int):
        return when
    if when.tzinfo is None:
        raise TaskRefused("a time needs its time zone: datetime.now(UTC), not datetime.now()")
    return round(when.timestamp() * 1000)


_RESERVED = frozenset(
    {
        protocol.ATTEMPT,
        protocol.DUE,
        protocol.TRACE,
        protocol.ORIGIN,
        protocol.FIRST_FAILURE,
        protocol.FAILURE,
    }
)


def _checked_headers(options: CallOptions) -> Headers:
    taken = _RESERVED & options.headers.keys()
    if taken:
        raise TaskRefused(f"header {min(taken)!r} is reserved for the platform")
    own = tuple((name, value.encode()) for name, value in options.headers.items())
    size_bytes = _headers_bytes(own)
    if size_bytes > protocol.OWN_HEADERS_BYTES_MAX:
        limit = protocol.OWN_HEADERS_BYTES_MAX
        raise TaskRefused(f"the headers take {size_bytes} bytes, the limit is {limit}")
    return own


def _encoded(message: TaskMessage | TimerMessage) -> bytes:
    try:
        return protocol.encode_message(message)
    except MalformedTask as error:
        raise TaskRefused(f"the call cannot be sent: {error}") from None


# -- the worker's side -------------------------------------------------------------------------------


@dataclass(slots=True)
class TaskCall:
    """One attempt of one call."""

    place: TopicPartition
    offset: Offset
    key: bytes | None
    message: TaskMessage
    value: bytes
    attempt: int
    sent_ms: TimestampMs
    """When this record was written. For a retry, this is later than the call's own time."""
    due_ms: int | None
    trace: TraceSpan | None
    origin: str
    first_failure_ms: int | None
    own_headers: Headers
    """The headers that the sender set. They stay with the call."""

    @property
    def id(self) -> str:
        return self.message.id

    @property
    def task_name(self) -> str:
        return self.message.task

    @property
    def queue(self) -> str:
        return protocol.queue_of(self.place.topic)


def read_call(record: Received) -> TaskCall:
    """Raises MalformedTask if the record is not a call."""
    message = protocol.decode_task(record.value)
    headers = dict(record.headers) if record.headers else {}
    sent_ms = message.sent_ms if record.timestamp_ms == NO_TIMESTAMP else record.timestamp_ms
    return TaskCall(
        place=TopicPartition(record.topic, record.partition),
        offset=record.offset,
        key=record.key,
        message=message,
        value=record.value or b"",
        attempt=max(1, min(ATTEMPTS_MAX, _number(headers.get(protocol.ATTEMPT)) or 1)),
        sent_ms=sent_ms,
        due_ms=_number(headers.get(protocol.DUE)),
        trace=parse_trace(headers.get(protocol.TRACE)),
        origin=_text(headers.get(protocol.ORIGIN)) or position_text(record),
        first_failure_ms=_number(headers.get(protocol.FIRST_FAILURE)),
        own_headers=own_headers(record.headers),
    )


def position_text(record: Received) -> str:
    """TOPIC/PARTITION/OFFSET of a record: the id of its dead letter."""
    return f"{record.topic}/{record.partition}/{record.offset}"


def own_headers(headers: Headers) -> Headers:
    """The sender's headers. If there are too many (a foreign producer), none of them is kept, since
    retries and dead letters must fit in a record."""
    own = tuple(header for header in headers if header[0] not in protocol.PLATFORM_HEADERS)
    return own if _headers_bytes(own) <= protocol.OWN_HEADERS_BYTES_MAX else ()


def _headers_bytes(headers: Headers) -> int:
    return sum(len(name.encode()) + len(value or b"") for name, value in headers)


def _number(header: bytes | None) -> int | None:
    return int(header) if header is not None and header.isdigit() and len(header) < 19 else None


def _text(header: bytes | None) -> str | None:
    return header.decode("utf-8", "replace") if header else None
