"""Pending timers for operators, read from the log without an owner or its file."""

from __future__ import annotations

import heapq
from dataclasses import dataclass

from kafkaesque.client.ports import Log, Received
from kafkaesque.client.reading import read_stretch
from kafkaesque.events import tasks as protocol
from kafkaesque.events.tasks import MalformedTask
from kafkaesque.service.clock import SystemClock
from kafkaesque.tasks.rules.call import cancellation


@dataclass(frozen=True, slots=True)
class ListedTimer:
    """One pending timer."""

    id: str
    due_ms: int
    task: str
    queue: str
    cron: str | None


async def read_pending(log: Log, count_max: int) -> list[ListedTimer]:
    """The `count_max` timers that are due next. Raises TopicUnknown if the timers topic does not exist."""
    found = await _fold(log)
    return heapq.nsmallest(count_max, found.values(), key=lambda one: (one.due_ms, one.id))


async def cancel_pending(log: Log, timer_id: str) -> bool:
    """Returns False if no timer of this id is pending."""
    if timer_id not in await _fold(log):
        return False
    writer = await log.open_writer()
    try:
        await writer.send([cancellation(timer_id, SystemClock().wall_ms())])
    finally:
        await writer.close()
    return True


async def _fold(log: Log) -> dict[str, ListedTimer]:
    pending: dict[str, ListedTimer] = {}
    spans = await log.admin.spans(protocol.TIMERS.name)
    async for batch in read_stretch(log, spans):
        for record in batch:
            name = (record.key or b"").decode("utf-8", "replace")
            pending.pop(name, None)
            listed = None if name.startswith(protocol.OWNER_KEY) else _listed(name, record)
            if listed is not None:
                pending[name] = listed
    return pending


def _listed(name: str, record: Received) -> ListedTimer | None:
    if record.value is None:
        return None
    try:
        timer = protocol.decode_timer(record.value)
        task = protocol.decode_task(bytes(timer.message)).task
    except MalformedTask:
        return None
    cron = None if timer.cron is None else timer.cron.expression
    return ListedTimer(name, timer.due_ms, task, protocol.queue_of(timer.topic), cron)
