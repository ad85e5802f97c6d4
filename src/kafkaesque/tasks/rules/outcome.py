"""The outcome of one attempt, and the records that follow from it: retry, dead letter, result."""

from __future__ import annotations

import traceback
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import msgspec

from kafkaesque.client.ports import Headers, Received, Record
from kafkaesque.events import tasks as protocol
from kafkaesque.events.tasks import ResultMessage, TimerMessage, encode_message
from kafkaesque.model.ids import TimestampMs
from kafkaesque.tasks.rules.call import TaskCall, own_headers, position_text
from kafkaesque.tasks.rules.retry import tier_for
from kafkaesque.tasks.rules.task import DeclaredTask

TEXT_LENGTH_MAX: Final = 1_000
TRACEBACK_LENGTH_MAX: Final = 8_000


class DeadReason(StrEnum):
    """Why a call was given up; used for metrics and filters."""

    UNREADABLE = "unreadable"
    UNKNOWN_TASK = "unknown-task"
    UNKNOWN_VERSION = "unknown-version"
    WRONG_ARGUMENTS = "wrong-arguments"
    EXPIRED = "expired"
    REJECTED = "rejected"
    EXHAUSTED = "exhausted"
    HELD_TOO_LONG = "held-too-long"


@dataclass(frozen=True, slots=True)
class CallFailure:
    """An exception as bounded text."""

    kind: str
    text: str
    trace: str = ""

    @classmethod
    def of(cls, error: BaseException) -> CallFailure:
        kind = type(error).__qualname__
        if type(error).__module__ not in ("builtins", "__main__"):
            kind = f"{type(error).__module__}.{kind}"
        lines = "".join(traceback.format_exception(error))
        return cls(kind, str(error)[:TEXT_LENGTH_MAX], lines[-TRACEBACK_LENGTH_MAX:])

    def __str__(self) -> str:
        return f"{self.kind}: {self.text}" if self.text else self.kind


@dataclass(frozen=True, slots=True)
class Done:
    """The attempt succeeded and returned `value`."""

    value: object = None


@dataclass(frozen=True, slots=True)
class RetryAfter:
    """The attempt failed and is repeated after `delay_s`."""

    delay_s: float
    failure: CallFailure
    ordered: bool = False


@dataclass(frozen=True, slots=True)
class Dead:
    """The call is given up."""

    reason: DeadReason
    failure: CallFailure


Outcome = Done | RetryAfter | Dead


def follow_up_records(
    record: Received,
    call: TaskCall | None,
    task: DeclaredTask | None,
    outcome: Outcome,
    now_ms: TimestampMs,
    results_topic: str,
) -> list[Record]:
    """All records that must be in the log before `record` counts as finished."""
    if isinstance(outcome, RetryAfter):
        return [] if call is None else [retry_record(call, outcome, now_ms)]
    records: list[Record] = []
    if isinstance(outcome, Dead):
        queue = protocol.queue_of(record.topic)
        attempt = 1 if call is None else call.attempt
        records.append(dead_letter(record, queue, outcome, attempt, now_ms))
    if task is not None and task.policy.keeps_result and call is not None:
        records.append(result_record(results_topic, call, outcome, now_ms))
    return records


def retry_record(call: TaskCall, retry: RetryAfter, now_ms: TimestampMs) -> Record:
    """A record of the retry topic with the smallest sufficient delay or, for a long delay, a timer."""
    delay_ms = round(retry.delay_s * 1000)
    due_ms = TimestampMs(now_ms + delay_ms)
    headers = _next_attempt_headers(call, retry.failure, due_ms, now_ms)
    tier = tier_for(delay_ms)
    if tier is not None:
        topic = protocol.tier_topic(call.queue, tier)
        return Record(topic, call.key, call.value, headers, timestamp_ms=now_ms)
    texts = {name: (value or b"").decode("utf-8", "replace") for name, value in headers}
    timer = TimerMessage(
        due_ms=due_ms,
        topic=protocol.queue_topic(call.queue),
        message=msgspec.Raw(call.value),
        key=None if call.key is None else call.key.decode("utf-8", "replace"),
        headers=texts,
    )
    # The call's own id may belong to a timer that can still be cancelled, so the attempt has another.
    timer_id = f"{call.id}#{call.attempt + 1}"
    value = encode_message(timer)
    return Record(protocol.TIMERS.name, timer_id.encode(), value, timestamp_ms=now_ms)


def _next_attempt_headers(
    call: TaskCall, failure: CallFailure, due_ms: int, now_ms: int
) -> Headers:
    return (
        (protocol.ATTEMPT, str(call.attempt + 1).encode()),
        (protocol.DUE, str(due_ms).encode()),
        (protocol.ORIGIN, call.origin.encode()),
        (protocol.FIRST_FAILURE, str(call.first_failure_ms or now_ms).encode()),
        (protocol.FAILURE, str(failure).encode()),
        *(((protocol.TRACE, call.trace.header()),) if call.trace else ()),
        *call.own_headers,
    )


def dead_letter(record: Received, queue: str, dead: Dead, attempt: int, now_ms: int) -> Record:
    """The dead letter about `record`, which need not be a readable call. It has the record's value."""
    headers = dict(record.headers)
    position = position_text(record).encode()
    letter: dict[str, bytes | None] = {
        protocol.DEAD_REASON: dead.reason.encode(),
        protocol.FAILURE: str(dead.failure).encode(),
        protocol.DEAD_TRACE: dead.failure.trace.encode(),
        protocol.DEAD_TIME: str(now_ms).encode(),
        protocol.ATTEMPT: str(attempt).encode(),
        protocol.ORIGIN: headers.get(protocol.ORIGIN) or position,
        protocol.FIRST_FAILURE: headers.get(protocol.FIRST_FAILURE) or str(now_ms).encode(),
        protocol.TRACE: headers.get(protocol.TRACE),
        protocol.DEAD_KEY: record.key,
    }
    return Record(
        topic=protocol.dead_topic(queue),
        key=position,
        # A record without a value would be a tombstone here.
        value=record.value if record.value is not None else b"",
        headers=(
            *((name, value) for name, value in letter.items() if value is not None),
            *own_headers(record.headers),
        ),
        timestamp_ms=TimestampMs(now_ms),
    )


def result_record(topic: str, call: TaskCall, outcome: Done | Dead, now_ms: TimestampMs) -> Record:
    """A value that is not JSON is reported as a failure of the result, not of the task."""
    value, failure = msgspec.Raw(b"null"), None
    if isinstance(outcome, Done):
        try:
            value = msgspec.Raw(msgspec.json.encode(outcome.value))
        except (TypeError, msgspec.MsgspecError) as error:
            failure = f"the result is not JSON: {error}"
    else:
        failure = f"{outcome.reason}: {outcome.failure}"
    message = ResultMessage(call.id, call.task_name, failure is None, now_ms, value, failure)
    return Record(topic, call.id.encode(), encode_message(message), timestamp_ms=now_ms)
