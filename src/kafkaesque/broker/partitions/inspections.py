"""Appends whose records must be looked at first: in worker threads, joined in order of arrival."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from kafkaesque.broker.partitions.rules import admission
from kafkaesque.broker.partitions.rules.appended import Appended
from kafkaesque.model.settings import TopicConfig

Append = Callable[[memoryview], Appended]


class Inspections:
    """Those under way, oldest first."""

    __slots__ = ("_loop", "under_way")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.under_way: list[asyncio.Task[Appended]] = []

    def add(
        self, records: memoryview, config: TopicConfig, append: Append
    ) -> asyncio.Task[Appended]:
        """Look at `records`, then `append` what is to be stored, after all that came before."""
        previous = self.under_way[-1] if self.under_way else None
        task = self._loop.create_task(self._run(records, config, append, previous))
        self.under_way.append(task)
        task.add_done_callback(self.under_way.remove)
        return task

    async def _run(
        self,
        records: memoryview,
        config: TopicConfig,
        append: Append,
        previous: asyncio.Task[Appended] | None,
    ) -> Appended:
        stored = await self._loop.run_in_executor(None, admission.inspect, records, config)
        if previous is not None:
            await asyncio.wait([previous])
        return append(stored)
