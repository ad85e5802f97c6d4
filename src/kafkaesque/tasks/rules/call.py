"""A call on its way: from the record it stands in to what a task gets, and on to its next record. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from kafkaesque.client.ports import Headers, Received, Record
from kafkaesque.events import tasks as words
from kafkaesque.events.tasks import TaskMessage
from kafkaesque.model.ids import NO_TIMESTAMP, Offset, TimestampMs, TopicPartition
from kafkaesque.tasks.rules.outcome import Dead, Failure
from kafkaesque.tasks.trace import Span, parse_trace

ATTEMPTS_MAX = 1_000_000


@dataclass(slots=True)
class Call:
    """One attempt of one call."""

    place: TopicPartition
    offset: Offset
    key: bytes | None
    message: TaskMessage
    value: bytes
    attempt: int
    sent_ms: TimestampMs
    """When this record was written: a retry is waited for from then."""
    due_ms: int | None
    trace: Span | None
    origin: str
    first_failure_ms: int | None
    own_headers: Headers = ()
    """The headers that the sender set. They stay with the call."""

    @property
    def id(self) -> str:
        return self.message.id

    @property
    def task_name(self) -> str:
        return self.message.task

    @property
    def queue(self) -> str:
        return words.queue_of(self.place.topic)


def read_call(record: Received) -> Call:
    """MalformedTask if it is none."""
    message = words.decode_task(record.value)
    headers = dict(record.headers) if record.headers else {}
    own = f"{record.topic}/{record.partition}/{record.offset}"
    sent_ms = message.sent_ms if record.timestamp_ms == NO_TIMESTAMP else record.timestamp_ms
    return Call(
        place=TopicPartition(record.topic, record.partition),
        offset=record.offset,
        key=record.key,
        message=message,
        value=record.value or b"",
        attempt=max(1, min(ATTEMPTS_MAX, _number(headers.get(words.ATTEMPT)) or 1)),
        sent_ms=sent_ms,
        due_ms=_number(headers.get(words.DUE)),
        trace=parse_trace(headers.get(words.TRACE)),
        origin=_text(headers.get(words.ORIGIN)) or own,
        first_failure_ms=_number(headers.get(words.FIRST_FAILURE)),
        own_headers=own_headers(record.headers),
    )


def own_headers(headers: Headers) -> Headers:
    """The sender's headers. Too many of them (from a foreign producer) are left out, since retries and
    dead letters must fit in a record."""
    own = tuple(header for header in headers if header[0] not in words.PLATFORM_HEADERS)
    return own if headers_bytes(own) <= words.OWN_HEADERS_BYTES_MAX else ()


def headers_bytes(headers: Headers) -> int:
    return sum(len(name.encode()) + len(value or b"") for name, value in headers)


def next_attempt_headers(call: Call, failure: Failure, due_ms: int, now_ms: int) -> Headers:
    """Of the record that carries the call to its next attempt."""
    return (
        (words.ATTEMPT, str(call.attempt + 1).encode()),
        (words.DUE, str(due_ms).encode()),
        (words.ORIGIN, call.origin.encode()),
        (words.FIRST_FAILURE, str(call.first_failure_ms or now_ms).encode()),
        (words.FAILURE, str(failure).encode()),
        *(((words.TRACE, call.trace.header()),) if call.trace else ()),
        *call.own_headers,
    )


def dead_letter(record: Received, queue: str, dead: Dead, attempt: int, now_ms: int) -> Record:
    """The letter about `record`, which need not be a readable call. It carries the record's bytes."""
    headers = dict(record.headers)
    own = f"{record.topic}/{record.partition}/{record.offset}"
    letter: dict[str, bytes | None] = {
        words.DEAD_REASON: dead.reason.encode(),
        words.FAILURE: str(dead.failure).encode(),
        words.DEAD_TRACE: dead.failure.trace.encode(),
        words.DEAD_TIME: str(now_ms).encode(),
        words.ATTEMPT: str(attempt).encode(),
        words.ORIGIN: headers.get(words.ORIGIN) or own.encode(),
        words.FIRST_FAILURE: headers.get(words.FIRST_FAILURE) or str(now_ms).encode(),
        words.TRACE: headers.get(words.TRACE),
        words.DEAD_KEY: record.key,
    }
    return Record(
        topic=words.dead_topic(queue),
        key=own.encode(),
        # A record without value would be a tombstone here.
        value=record.value if record.value is not None else b"",
        headers=(
            *((name, value) for name, value in letter.items() if value is not None),
            *own_headers(record.headers),
        ),
        timestamp_ms=TimestampMs(now_ms),
    )


def _number(header: bytes | None) -> int | None:
    return int(header) if header is not None and header.isdigit() and len(header) < 19 else None


def _text(header: bytes | None) -> str | None:
    return header.decode("utf-8", "replace") if header else None
