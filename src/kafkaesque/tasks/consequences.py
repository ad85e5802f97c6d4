"""From an outcome to the records that follow from it: retries, dead letters, results. Pure."""

from __future__ import annotations

import msgspec

from kafkaesque.client.ports import Record
from kafkaesque.events import tasks as words
from kafkaesque.events.tasks import TimerMessage, encode_message
from kafkaesque.model.ids import TimestampMs
from kafkaesque.tasks.results import result_record
from kafkaesque.tasks.rules.call import Call, dead_letter, next_attempt_headers
from kafkaesque.tasks.rules.holdings import Item
from kafkaesque.tasks.rules.outcome import Again, Dead, Done, Outcome
from kafkaesque.tasks.rules.retry import tier_for
from kafkaesque.tasks.task import Declared


def consequences(
    item: Item, task: Declared | None, outcome: Outcome, now_ms: TimestampMs, results_topic: str
) -> list[Record]:
    """All that must be in the log before `item` counts as finished."""
    records: list[Record] = []
    call = item.call
    if isinstance(outcome, Again):
        if call is not None:
            records.append(retry_record(call, outcome, now_ms))
        return records
    if isinstance(outcome, Dead):
        queue = words.queue_of(item.record.topic)
        attempt = 1 if call is None else call.attempt
        records.append(dead_letter(item.record, queue, outcome, attempt, now_ms))
    if task is not None and task.policy.keeps_result and call is not None:
        records.append(result_record(results_topic, call, outcome, now_ms))
    return records


def retry_record(call: Call, again: Again, now_ms: TimestampMs) -> Record:
    """To the delayed topic of its tier, or, for a long delay, to the timers."""
    delay_ms = round(again.delay_s * 1000)
    due_ms = TimestampMs(now_ms + delay_ms)
    headers = next_attempt_headers(call, again.failure, due_ms, now_ms)
    tier = tier_for(delay_ms)
    if tier is not None:
        topic = words.tier_topic(call.queue, tier)
        return Record(topic, call.key, call.value, headers, timestamp_ms=now_ms)
    texts = {name: (value or b"").decode("utf-8", "replace") for name, value in headers}
    timer = TimerMessage(
        due_ms=due_ms,
        topic=words.queue_topic(call.queue),
        message=msgspec.Raw(call.value),
        key=None if call.key is None else call.key.decode("utf-8", "replace"),
        headers=texts,
    )
    # Its own id would be that of a timer that may still be cancelled; an attempt is a timer of its own.
    timer_id = f"{call.id}#{call.attempt + 1}"
    return Record(words.TIMERS.name, timer_id.encode(), encode_message(timer), timestamp_ms=now_ms)


def is_final(outcome: Outcome) -> bool:
    return isinstance(outcome, Done | Dead)
