"""The timers of one process: an owner for each partition that the election assigns to it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from pathlib import Path
from typing import Any

from kafkaesque.client.ports import Log, LogError
from kafkaesque.events import tasks as protocol
from kafkaesque.model.clock import Clock
from kafkaesque.model.ids import PartitionIndex
from kafkaesque.service.pass_backoff import PassBackoff, sleep_unless
from kafkaesque.tasks.config import TasksConfig
from kafkaesque.tasks.timers.election import ElectionLost, Ownership
from kafkaesque.tasks.timers.metrics import TimerMetrics
from kafkaesque.tasks.timers.owner import TimerOwner

logger = logging.getLogger(__name__)

LOOK_SECONDS = 1.0
"""How often the assignment is checked when no watch fires."""
RETRY_SECONDS = 0.5
RETRY_SECONDS_MAX = 15.0


class TimerService:
    """Runs until `stop`."""

    def __init__(
        self,
        log: Log,
        ownership: Ownership,
        directory: Path | None,
        clock: Clock,
        config: TasksConfig,
    ) -> None:
        self._log = log
        self._ownership = ownership
        self._directory = directory
        self._clock = clock
        self._config = config
        self._owners: dict[int, asyncio.Task[None]] = {}
        self._partitions = 0
        self._stopping = asyncio.Event()
        self.metrics = TimerMetrics()
        self.caught_up: set[int] = set()
        self.ready = asyncio.Event()
        self.error: str | None = None

    @property
    def owned(self) -> frozenset[int]:
        return frozenset(self._owners)

    def prometheus(self) -> str:
        return self.metrics.prometheus(len(self.owned), len(self.caught_up))

    def status(self) -> dict[str, Any]:
        return {
            "owned": sorted(self.owned),
            "caught_up": sorted(self.caught_up),
            "fired": self.metrics.fired,
            "cancelled": self.metrics.cancelled,
            "pending": sum(self.metrics.pending.values()),
            "timers_error": self.error,
        }

    def stop(self) -> None:
        self._stopping.set()

    async def run(self) -> None:
        """Errors of the log and the election are retried."""
        backoff = PassBackoff(RETRY_SECONDS, RETRY_SECONDS_MAX)
        while not self._stopping.is_set():
            backoff.start()
            try:
                await self._run_membership()
            except (LogError, ElectionLost) as error:
                self.error = str(error)
                wait_s = backoff.next_s()
                logger.warning("timers stopped: %s; retry in %.1f s", error, wait_s)
                await sleep_unless(self._stopping, wait_s)

    async def _run_membership(self) -> None:
        await self._log.admin.ensure_topics([protocol.TIMERS, protocol.TIMERS_DEAD])
        self._partitions = await self._log.admin.partition_count(protocol.TIMERS.name)
        await self._ownership.open()
        try:
            self.error = None
            while not self._stopping.is_set():
                await self._reconcile()
                self.ready.set()
                await self._wait()
        finally:
            await self._drop(self.owned, release=self._stopping.is_set())
            await self._ownership.close()

    async def _wait(self) -> None:
        """Returns when the assignment changes, an owner ends, or the service stops."""
        waits = [
            asyncio.create_task(self._ownership.changed(LOOK_SECONDS)),
            asyncio.create_task(self._stopping.wait()),
        ]
        await asyncio.wait([*waits, *self._owners.values()], return_when=asyncio.FIRST_COMPLETED)
        for wait in waits:
            wait.cancel()
        await asyncio.gather(*waits, return_exceptions=True)

    async def _reconcile(self) -> None:
        wanted = await self._ownership.wanted(self._partitions)
        ended = {one for one, task in self._owners.items() if task.done()}
        await self._drop(ended, release=False)
        await self._drop(self.owned - wanted, release=True)
        for partition in sorted(wanted - self.owned):
            if await self._ownership.acquire(partition):
                self._owners[partition] = asyncio.create_task(self._own(partition))

    async def _drop(self, partitions: frozenset[int] | set[int], *, release: bool) -> None:
        for partition in sorted(partitions):
            task = self._owners.pop(partition)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            if release:
                with contextlib.suppress(ElectionLost):
                    await self._ownership.release(partition)

    async def _own(self, partition: int) -> None:
        """Runs one owner until it is cancelled or the log fails; `_reconcile` then starts it again."""
        owner = TimerOwner(
            self._log,
            PartitionIndex(partition),
            self._directory,
            self._clock,
            self._config,
            self.metrics,
        )
        tick_s = self._config.timers_tick_ms / 1000
        try:
            await owner.open()
            while True:
                await owner.turn(await self._wait_s(owner, tick_s))
                if owner.is_caught_up:
                    self.caught_up.add(partition)
        except LogError as error:
            self.error = str(error)
            logger.warning("timer owner failed: partition=%d: %s", partition, error)
            await asyncio.sleep(RETRY_SECONDS)
        finally:
            self.caught_up.discard(partition)
            # Shielded: a half-closed owner would keep using the partition's transactional id.
            await asyncio.shield(owner.close())

    async def _wait_s(self, owner: TimerOwner, tick_s: float) -> float:
        due_ms = await owner.next_due_ms()
        if due_ms is None:
            return tick_s
        # Never longer than a tick, since the clock may jump.
        return max(0.0, min(tick_s, (due_ms - self._clock.wall_ms()) / 1000))
