"""A whole worker process: the worker, the bridges of the listeners, the application's resources."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Iterable
from typing import Any

from kafkaesque.client.dead_letters import DeadLetterCounts
from kafkaesque.client.ports import Log, LogError
from kafkaesque.events.tasks import dead_topic
from kafkaesque.tasks.app import App
from kafkaesque.tasks.config import TasksConfig
from kafkaesque.tasks.counts import Counts
from kafkaesque.tasks.listening import Bridge, Listener
from kafkaesque.tasks.rules.holdings import UNKNOWN
from kafkaesque.tasks.worker import Worker

logger = logging.getLogger(__name__)

READ_SECONDS = 0.5
RETRY_SECONDS = 0.5
RETRY_SECONDS_MAX = 15.0
DEPTH_SECONDS = 10.0
"""How often the depth of the dead letters is looked up."""


class Crew:
    """Runs until `stop`."""

    def __init__(
        self,
        app: App,
        log: Log,
        config: TasksConfig,
        name: str,
        queues: Iterable[str] | None = None,
    ) -> None:
        self._app = app
        self._log = log
        self._name = name
        self._worker = Worker(app, log, config, name=name, queues=queues)
        self._stopping = asyncio.Event()
        self._followed: dict[str, int] = {}

    @property
    def counts(self) -> Counts:
        return self._worker.counts

    @property
    def ready(self) -> asyncio.Event:
        return self._worker.ready

    @property
    def abandoned_threads(self) -> int:
        return self._worker.abandoned_threads

    def stop(self) -> None:
        self._stopping.set()

    def trouble(self) -> str | None:
        if self.ready.is_set():
            return self.counts.error
        return self.counts.error or "starting"

    def status(self) -> dict[str, Any]:
        return {**self.counts.as_dict(), "followed": dict(self._followed)}

    async def run(self) -> None:
        async with contextlib.AsyncExitStack() as stack:
            for resource in self._app.resources:
                await stack.enter_async_context(resource(self._log))
            working = asyncio.create_task(self._worker.run())
            others = [
                asyncio.create_task(self._follow(listener)) for listener in self._app.listeners
            ]
            others.append(asyncio.create_task(self._look_at_depths()))
            stop = asyncio.create_task(self._stopping.wait())
            try:
                await asyncio.wait([working, stop], return_when=asyncio.FIRST_COMPLETED)
                self._worker.stop()
                await working
            finally:
                for task in (working, stop, *others):
                    task.cancel()
                await asyncio.gather(working, stop, *others, return_exceptions=True)

    async def _follow(self, listener: Listener) -> None:
        """One bridge, made anew after every trouble with the log."""
        app, wait_s = self._app, RETRY_SECONDS
        while True:
            try:
                bridge = await Bridge.open(
                    listener, self._log, app.clock, app=app.name, worker=self._name
                )
                try:
                    while True:
                        count = await bridge.turn(READ_SECONDS)
                        self._followed[listener.name] = self._followed.get(listener.name, 0) + count
                        wait_s = RETRY_SECONDS
                finally:
                    await asyncio.shield(bridge.close())
            except LogError as error:
                logger.warning("%s: %s; again in %.1f s", listener.name, error, wait_s)
                await asyncio.sleep(wait_s)
                wait_s = min(2 * wait_s, RETRY_SECONDS_MAX)

    async def _look_at_depths(self) -> None:
        """Dead letters by task, and records of their topics: what compaction has not removed yet is
        among those."""
        app = self._app
        looks = {
            queue: DeadLetterCounts(self._log, queue, app.tasks, UNKNOWN) for queue in app.queues
        }
        while True:
            for queue, letters in looks.items():
                with contextlib.suppress(LogError):
                    spans = await self._log.admin.spans(dead_topic(queue))
                    self.counts.dead_records[queue] = sum(
                        span.end - span.start for span in spans.values()
                    )
                    self.counts.dead_letters[queue] = await letters.update()
            await asyncio.sleep(DEPTH_SECONDS)
