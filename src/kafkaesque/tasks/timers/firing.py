"""What is written when timers are due: the calls, and what becomes of the timers. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

import msgspec

from kafkaesque.client.ports import Headers, Record
from kafkaesque.events import tasks as words
from kafkaesque.events.tasks import MalformedTask, TimerMessage
from kafkaesque.model.ids import PartitionIndex, TimestampMs
from kafkaesque.tasks.rules import outcome as reasons
from kafkaesque.tasks.rules.call import dead_letter
from kafkaesque.tasks.rules.outcome import Dead, Failure
from kafkaesque.tasks.timers.cron import due_times, next_ms
from kafkaesque.tasks.timers.store import Pending, Refused


@dataclass(slots=True)
class Firing:
    """One transaction of an owner."""

    records: list[Record] = field(default_factory=list)
    ended: list[Pending] = field(default_factory=list)
    again: list[Pending] = field(default_factory=list)
    """Crons, with their next time."""
    calls: Counter[str] = field(default_factory=Counter)
    """By task."""


def fire(due: Iterable[Pending], partition: PartitionIndex, now_ms: TimestampMs) -> Firing:
    firing = Firing()
    for timer in due:
        rule = timer.message.cron
        if rule is None:
            firing.records.append(call_record(timer.message, timer.due_ms, now_ms))
            firing.records.append(_ended(timer, partition, now_ms))
            firing.ended.append(timer)
            firing.calls[timer.task] += 1
            continue
        times = due_times(rule, timer.due_ms, now_ms)
        for time_ms in times:
            occurrence = _occurrence(timer, time_ms)
            firing.records.append(call_record(occurrence, time_ms, now_ms))
        firing.calls[timer.task] += len(times)
        after_ms = TimestampMs(max(now_ms, timer.due_ms))
        due_ms = TimestampMs(next_ms(rule, after_ms))
        following = msgspec.structs.replace(
            timer.message, due_ms=due_ms, cron=msgspec.structs.replace(rule, after_ms=after_ms)
        )
        again = Pending(timer.id, due_ms, timer.offset, following)
        firing.again.append(again)
        firing.records.append(timer_record(again, partition, now_ms))
    return firing


def call_record(timer: TimerMessage, due_ms: int, now_ms: TimestampMs) -> Record:
    headers = {**timer.headers, words.DUE: str(due_ms)}
    return Record(
        topic=timer.topic,
        key=None if timer.key is None else timer.key.encode(),
        value=bytes(timer.message),
        headers=_headers(headers),
        timestamp_ms=now_ms,
    )


def timer_record(timer: Pending, partition: PartitionIndex, now_ms: TimestampMs) -> Record:
    return Record(
        topic=words.TIMERS.name,
        key=timer.id.encode(),
        value=words.encode_message(timer.message),
        partition=partition,
        timestamp_ms=now_ms,
    )


def refusals(
    refused: Iterable[Refused], partition: PartitionIndex, now_ms: TimestampMs
) -> list[Record]:
    """Dead letters of what is no timer, and its end."""
    records: list[Record] = []
    for one in refused:
        record = one.record
        dead = Dead(reasons.UNREADABLE, Failure("MalformedTask", one.reason))
        records.append(dead_letter(record, "timers", dead, 1, now_ms))
        if record.key is not None:
            fired = ((words.FIRED, str(record.offset).encode()),)
            records.append(Record(words.TIMERS.name, record.key, None, fired, partition, now_ms))
    return records


def _ended(timer: Pending, partition: PartitionIndex, now_ms: TimestampMs) -> Record:
    fired = ((words.FIRED, str(timer.offset).encode()),)
    return Record(words.TIMERS.name, timer.id.encode(), None, fired, partition, now_ms)


def _occurrence(timer: Pending, time_ms: int) -> TimerMessage:
    """Each time of a cron is a call of its own, with an id that tells it apart."""
    try:
        message = words.decode_task(bytes(timer.message.message))
    except MalformedTask:
        return timer.message
    named = msgspec.structs.replace(
        message, id=f"{timer.id}/{time_ms}", sent_ms=TimestampMs(time_ms)
    )
    raw = msgspec.Raw(words.encode_message(named))
    return msgspec.structs.replace(timer.message, message=raw)


def _headers(texts: dict[str, str]) -> Headers:
    return tuple((name, value.encode()) for name, value in texts.items())
