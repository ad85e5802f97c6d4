"""The records of a firing: the calls, and the new state of their timers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

import msgspec

from kafkaesque.client.ports import Headers, Record
from kafkaesque.events import tasks as protocol
from kafkaesque.events.tasks import MalformedTask, TimerMessage
from kafkaesque.model.ids import PartitionIndex, TimestampMs
from kafkaesque.tasks.rules.outcome import CallFailure, Dead, DeadReason, dead_letter
from kafkaesque.tasks.timers.cron import due_times, next_ms
from kafkaesque.tasks.timers.store import PendingTimer, RefusedRecord


@dataclass(slots=True)
class Firing:
    """The content of one transaction of an owner."""

    records: list[Record] = field(default_factory=list)
    ended: list[PendingTimer] = field(default_factory=list)
    again: list[PendingTimer] = field(default_factory=list)
    """Crons, with their next due time."""
    calls: Counter[str] = field(default_factory=Counter)
    """The number of calls by task."""


def fire(due: Iterable[PendingTimer], partition: PartitionIndex, now_ms: TimestampMs) -> Firing:
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
        again = PendingTimer(timer.id, due_ms, timer.offset, following)
        firing.again.append(again)
        firing.records.append(timer_record(again, partition, now_ms))
    return firing


def call_record(timer: TimerMessage, due_ms: int, now_ms: TimestampMs) -> Record:
    headers = {**timer.headers, protocol.DUE: str(due_ms)}
    return Record(
        topic=timer.topic,
        key=None if timer.key is None else timer.key.encode(),
        value=bytes(timer.message),
        headers=_headers(headers),
        timestamp_ms=now_ms,
    )


def timer_record(timer: PendingTimer, partition: PartitionIndex, now_ms: TimestampMs) -> Record:
    return Record(
        topic=protocol.TIMERS.name,
        key=timer.id.encode(),
        value=protocol.encode_message(timer.message),
        partition=partition,
        timestamp_ms=now_ms,
    )


def refusals(
    refused: Iterable[RefusedRecord], partition: PartitionIndex, now_ms: TimestampMs
) -> list[Record]:
    """Dead letters for records that are not timers, and tombstones for these records."""
    records: list[Record] = []
    for one in refused:
        record = one.record
        dead = Dead(DeadReason.UNREADABLE, CallFailure("MalformedTask", one.reason))
        records.append(dead_letter(record, "timers", dead, 1, now_ms))
        if record.key is not None:
            fired = ((protocol.FIRED, str(record.offset).encode()),)
            records.append(Record(protocol.TIMERS.name, record.key, None, fired, partition, now_ms))
    return records


def _ended(timer: PendingTimer, partition: PartitionIndex, now_ms: TimestampMs) -> Record:
    fired = ((protocol.FIRED, str(timer.offset).encode()),)
    return Record(protocol.TIMERS.name, timer.id.encode(), None, fired, partition, now_ms)


def _occurrence(timer: PendingTimer, time_ms: int) -> TimerMessage:
    """The call of one cron time. Each has an id of its own."""
    try:
        message = protocol.decode_task(bytes(timer.message.message))
    except MalformedTask:
        return timer.message
    named = msgspec.structs.replace(
        message, id=f"{timer.id}/{time_ms}", sent_ms=TimestampMs(time_ms)
    )
    raw = msgspec.Raw(protocol.encode_message(named))
    return msgspec.structs.replace(timer.message, message=raw)


def _headers(texts: dict[str, str]) -> Headers:
    return tuple((name, value.encode()) for name, value in texts.items())
