"""The owner of one partition of the timers: reads it, keeps its file, fires what is due.

Two owners cannot both fire a timer. The transactional id of a partition fences the former owner; its
last transaction is over, one way or the other, when the new one's writer is open. The new owner then
writes a mark and reads until it sees it: only then it knows all that the former has fired.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from kafkaesque.client.ports import Assignment, Log, LogReader, LogWriter, Record, WriterOptions
from kafkaesque.events import tasks as words
from kafkaesque.model.clock import Clock
from kafkaesque.model.ids import PartitionIndex, TopicPartition
from kafkaesque.model.limits import MIB
from kafkaesque.tasks import system
from kafkaesque.tasks.config import TasksConfig
from kafkaesque.tasks.counts import Histogram
from kafkaesque.tasks.timers.firing import fire, refusals, timer_record
from kafkaesque.tasks.timers.store import Pending, Refused, TimerStore

T = TypeVar("T")

logger = logging.getLogger(__name__)

READ_RECORDS = 5_000
FIRED_BYTES_MAX = 8 * MIB
"""Of one transaction."""


@dataclass(slots=True)
class TaskTimers:
    """Of the timers of one task."""

    fired: int = 0
    cancelled: int = 0
    late_s: Histogram = field(default_factory=Histogram)


@dataclass(slots=True)
class TimerCounts:
    """Of one process, over all its partitions; tasks are QUEUE/NAME."""

    tasks: defaultdict[str, TaskTimers] = field(default_factory=lambda: defaultdict(TaskTimers))
    refused: int = 0
    pending: dict[int, int] = field(default_factory=dict)
    pending_tasks: dict[int, dict[str, int]] = field(default_factory=dict)
    """By partition, as `pending`."""

    @property
    def fired(self) -> int:
        return sum(one.fired for one in list(self.tasks.values()))

    @property
    def cancelled(self) -> int:
        return sum(one.cancelled for one in list(self.tasks.values()))

    def waiting(self, partition: int, tasks: Mapping[str, int]) -> None:
        self.pending[partition] = sum(tasks.values())
        self.pending_tasks[partition] = dict(tasks)

    def pending_by_task(self) -> dict[str, int]:
        total: Counter[str] = Counter()
        for tasks in list(self.pending_tasks.values()):
            total.update(tasks)
        return total


class TimerOwner:
    """One partition. Made, opened, turned again and again, closed."""

    def __init__(
        self,
        log: Log,
        partition: PartitionIndex,
        directory: Path | None,
        clock: Clock,
        config: TasksConfig,
        counts: TimerCounts,
    ) -> None:
        self._log = log
        self._place = TopicPartition(words.TIMERS.name, partition)
        self._path = None if directory is None else directory / f"timers-{partition}.db"
        self._clock = clock
        self._config = config
        self._counts = counts
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=f"timers-{partition}")
        self._store: TimerStore | None = None
        self._reader: LogReader | None = None
        self._writer: LogWriter | None = None
        self._waiting_for: bytes | None = None

    @property
    def is_caught_up(self) -> bool:
        return self._writer is not None and self._waiting_for is None

    async def open(self) -> None:
        partition = self._place.partition
        options = WriterOptions(transactional_id=f"tasks.timers-{partition}", linger_ms=0)
        writer = self._writer = await self._log.open_writer(options)
        topic_id = (await self._log.admin.topic_ids([self._place.topic]))[self._place.topic]
        now_ms = self._clock.wall_ms()
        store = self._store = await self._run(
            lambda: TimerStore.open(self._path, str(topic_id), now_ms)
        )
        start = await self._run(lambda: store.next_offset)
        self._reader = await self._log.open_reader(Assignment({self._place: start}))
        mark = system.new_id().encode()
        async with writer.transaction():
            key = f"{words.OWNER_KEY}{partition}".encode()
            await writer.send([Record(self._place.topic, key, mark, partition=partition)])
        self._waiting_for = mark

    async def turn(self, wait_s: float) -> int:
        """Read what is new, fire what is due; how many records were read and timers fired."""
        read = await self._read(wait_s)
        if not self.is_caught_up:
            return read
        return read + await self._fire()

    async def _read(self, wait_s: float) -> int:
        reader, store = self._reader, self._store
        if reader is None or store is None:
            return 0
        records = await reader.read(READ_RECORDS, wait_s)
        if not records:
            return 0
        if any(record.value == self._waiting_for for record in records):
            self._waiting_for = None
        next_offset = records[-1].offset + 1
        now_ms = self._clock.wall_ms()
        await self._run(lambda: store.apply(records, next_offset, now_ms))
        for task, count in store.cancelled.items():
            self._counts.tasks[task].cancelled += count
        store.cancelled.clear()
        if self.is_caught_up:
            await self._mend(store.take_unsettled())
        self._counts.waiting(self._place.partition, store.tasks)
        return len(records)

    async def _mend(self, unsettled: Sequence[Pending | Refused]) -> None:
        if self._writer is None or not unsettled:
            return
        now_ms, partition = self._clock.wall_ms(), self._place.partition
        refused = [one for one in unsettled if isinstance(one, Refused)]
        records = [
            timer_record(one, partition, now_ms) for one in unsettled if isinstance(one, Pending)
        ]
        records += refusals(refused, partition, now_ms)
        for one in refused:
            logger.warning("no timer at %s %d: %s", self._place, one.record.offset, one.reason)
        self._counts.refused += len(refused)
        async with self._writer.transaction():
            await self._writer.send(records)

    async def _fire(self) -> int:
        store, writer = self._store, self._writer
        if store is None or writer is None:
            return 0
        now_ms = self._clock.wall_ms()
        found = await self._run(lambda: store.due(now_ms, self._config.timers_batch_max))
        due = _within_bytes(found, FIRED_BYTES_MAX)
        if not due:
            return 0
        firing = fire(due, self._place.partition, now_ms)
        async with writer.transaction():
            await writer.send(firing.records)
        await self._run(lambda: store.fired(firing.ended, firing.again))
        self._counts.waiting(self._place.partition, store.tasks)
        done_ms = self._clock.wall_ms()
        for timer in due:
            self._counts.tasks[timer.task].late_s.add(max(0, done_ms - timer.due_ms) / 1000)
        for task, calls in firing.calls.items():
            self._counts.tasks[task].fired += calls
        return len(due)

    async def next_offset(self) -> int:
        """Whatever is before it has been read."""
        store = self._store
        return -1 if store is None else await self._run(lambda: store.next_offset)

    async def next_due_ms(self) -> int | None:
        store = self._store
        return None if store is None else await self._run(store.next_due_ms)

    async def close(self) -> None:
        store = self._store
        try:
            if self._reader is not None:
                await self._reader.close()
            if self._writer is not None:
                await self._writer.close()
        finally:
            if store is not None:
                await self._run(store.close)
            self._thread.shutdown(wait=False)
            self._counts.pending.pop(self._place.partition, None)
            self._counts.pending_tasks.pop(self._place.partition, None)

    async def _run(self, function: Callable[[], T]) -> T:
        if self._path is None:
            return function()
        return await asyncio.get_running_loop().run_in_executor(self._thread, function)


def _within_bytes(due: Sequence[Pending], size_bytes_max: int) -> Sequence[Pending]:
    """The first, and as many more as fit."""
    total = 0
    for count, timer in enumerate(due):
        total += len(bytes(timer.message.message))
        if total > size_bytes_max:
            return due[: max(1, count)]
    return due
