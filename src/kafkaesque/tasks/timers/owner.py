"""The owner of one partition of the timers: reads it, keeps its file, fires the timers that are due.

Two owners cannot both fire a timer. The partition's transactional id fences the previous owner: when the
new owner's writer is open, the last transaction of the previous one is committed or aborted. The new owner
then writes a mark and reads until it sees it. Only then has it seen everything that the previous owner fired.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from kafkaesque.client.ports import Assignment, Log, LogReader, LogWriter, Record, WriterOptions
from kafkaesque.events import tasks as protocol
from kafkaesque.model.clock import Clock
from kafkaesque.model.ids import PartitionIndex, TopicPartition
from kafkaesque.model.limits import MIB
from kafkaesque.tasks import system
from kafkaesque.tasks.config import TasksConfig
from kafkaesque.tasks.timers.firing import fire, refusals, timer_record
from kafkaesque.tasks.timers.metrics import TimerMetrics
from kafkaesque.tasks.timers.store import PendingTimer, RefusedRecord, TimerStore

T = TypeVar("T")

logger = logging.getLogger(__name__)

READ_RECORDS = 5_000
FIRED_BYTES_MAX = 8 * MIB
"""The maximum size of one transaction."""


class TimerOwner:
    """Owns one partition. Call `open`, then `turn` repeatedly, then `close`."""

    def __init__(
        self,
        log: Log,
        partition: PartitionIndex,
        directory: Path | None,
        clock: Clock,
        config: TasksConfig,
        metrics: TimerMetrics,
    ) -> None:
        self._log = log
        self._place = TopicPartition(protocol.TIMERS.name, partition)
        self._path = None if directory is None else directory / f"timers-{partition}.db"
        self._clock = clock
        self._config = config
        self._metrics = metrics
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=f"timers-{partition}")
        self._store: TimerStore | None = None
        self._reader: LogReader | None = None
        self._writer: LogWriter | None = None
        self._awaited_mark: bytes | None = None

    @property
    def is_caught_up(self) -> bool:
        return self._writer is not None and self._awaited_mark is None

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
            key = f"{protocol.OWNER_KEY}{partition}".encode()
            await writer.send([Record(self._place.topic, key, mark, partition=partition)])
        self._awaited_mark = mark

    async def turn(self, wait_s: float) -> int:
        """Reads new records and fires timers that are due. Returns how many records and timers that were."""
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
        if any(record.value == self._awaited_mark for record in records):
            self._awaited_mark = None
        next_offset = records[-1].offset + 1
        now_ms = self._clock.wall_ms()
        await self._run(lambda: store.apply(records, next_offset, now_ms))
        for task, count in store.cancelled.items():
            self._metrics.tasks[task].cancelled += count
        store.cancelled.clear()
        if self.is_caught_up:
            await self._write_unsettled(store.take_unsettled())
        self._metrics.set_pending(self._place.partition, store.tasks)
        return len(records)

    async def _write_unsettled(self, unsettled: Sequence[PendingTimer | RefusedRecord]) -> None:
        if self._writer is None or not unsettled:
            return
        now_ms, partition = self._clock.wall_ms(), self._place.partition
        refused = [one for one in unsettled if isinstance(one, RefusedRecord)]
        records = [
            timer_record(one, partition, now_ms)
            for one in unsettled
            if isinstance(one, PendingTimer)
        ]
        records += refusals(refused, partition, now_ms)
        for one in refused:
            logger.warning(
                "not a timer: %s offset=%d: %s", self._place, one.record.offset, one.reason
            )
        self._metrics.refused += len(refused)
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
        self._metrics.set_pending(self._place.partition, store.tasks)
        done_ms = self._clock.wall_ms()
        for timer in due:
            self._metrics.tasks[timer.task].late_s.add(max(0, done_ms - timer.due_ms) / 1000)
        for task, calls in firing.calls.items():
            self._metrics.tasks[task].fired += calls
        return len(due)

    async def next_offset(self) -> int:
        """All records before this offset have been read."""
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
            self._metrics.forget_pending(self._place.partition)

    async def _run(self, function: Callable[[], T]) -> T:
        if self._path is None:
            return function()
        return await asyncio.get_running_loop().run_in_executor(self._thread, function)


def _within_bytes(due: Sequence[PendingTimer], size_bytes_max: int) -> Sequence[PendingTimer]:
    """The first timer, and as many more as fit."""
    total = 0
    for count, timer in enumerate(due):
        total += len(bytes(timer.message.message))
        if total > size_bytes_max:
            return due[: max(1, count)]
    return due
