"""The pending timers as the log has them, for operators: no owner and no file is asked."""

from __future__ import annotations

import heapq
from dataclasses import dataclass

from kafkaesque.client.ports import Log, Received
from kafkaesque.client.reading import read_stretch
from kafkaesque.events import tasks as words
from kafkaesque.events.tasks import MalformedTask
from kafkaesque.tasks.composing import cancellation
from kafkaesque.tasks.system import SystemClock


@dataclass(frozen=True, slots=True)
class Listed:
    """One pending timer. `task` is None for what is no call."""

    id: str
    due_ms: int
    task: str | None
    queue: str
    cron: str | None


async def read_pending(log: Log, count_max: int) -> list[Listed]:
    """The first `count_max` to become due. TopicUnknown if there are no timers at all."""
    found = await _fold(log)
    return heapq.nsmallest(count_max, found.values(), key=lambda one: (one.due_ms, one.id))


async def cancel_pending(log: Log, timer_id: str) -> bool:
    """False if no such timer is pending."""
    if timer_id not in await _fold(log):
        return False
    writer = await log.open_writer()
    try:
        await writer.send([cancellation(timer_id, SystemClock().wall_ms())])
    finally:
        await writer.close()
    return True


async def _fold(log: Log) -> dict[str, Listed]:
    pending: dict[str, Listed] = {}
    spans = await log.admin.spans(words.TIMERS.name)
    async for batch in read_stretch(log, spans):
        for record in batch:
            name = (record.key or b"").decode("utf-8", "replace")
            pending.pop(name, None)
            listed = None if name.startswith(words.OWNER_KEY) else _listed(name, record)
            if listed is not None:
                pending[name] = listed
    return pending


def _listed(name: str, record: Received) -> Listed | None:
    if record.value is None:
        return None
    try:
        timer = words.decode_timer(record.value)
        task = words.decode_task(bytes(timer.message)).task
    except MalformedTask:
        return None
    cron = None if timer.cron is None else timer.cron.expression
    return Listed(name, timer.due_ms, task, words.queue_of(timer.topic), cron)
