"""A worker: runs the calls of an application, its listeners and its resources until it is stopped.

A log error ends a consumer session; the next one continues from what the group has committed.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Iterable
from typing import Any

from kafkaesque.client.dead_letters import DeadLetterCounts
from kafkaesque.client.ports import Log, LogError, TransactionsUnsupported, WriterFenced
from kafkaesque.events.tasks import dead_topic
from kafkaesque.model.backoff import Backoff
from kafkaesque.service.pass_backoff import PassBackoff, sleep_unless
from kafkaesque.tasks import system
from kafkaesque.tasks.app import App
from kafkaesque.tasks.config import TasksConfig
from kafkaesque.tasks.execution import AttemptRunner, Invocation, make_chain
from kafkaesque.tasks.listener import Listener, ListenerBridge
from kafkaesque.tasks.metrics import WorkerMetrics
from kafkaesque.tasks.rules.in_flight import UNDECLARED
from kafkaesque.tasks.session import ConsumerSession
from kafkaesque.tasks.thread_pool import ThreadPool

logger = logging.getLogger(__name__)

READ_SECONDS = 0.5
RETRY_SECONDS = 0.5
RETRY_SECONDS_MAX = 15.0
DEAD_LETTERS_SECONDS = 10.0
"""How often dead letters are counted."""


class Worker:
    """Runs the calls of `app` until `stop`."""

    def __init__(
        self,
        app: App,
        log: Log,
        config: TasksConfig = TasksConfig(),  # noqa: B008 - frozen
        *,
        name: str | None = None,
        queues: Iterable[str] | None = None,
    ) -> None:
        self._app = app
        self._log = log
        self._config = config
        self.name = name or system.new_id()[:12]
        """Identifies the worker within its application. A worker that restarts under the same name
        aborts at once the transactions that its previous process left open."""
        self._queues = sorted(queues or app.queues)
        self.metrics = WorkerMetrics(app.name, app.tasks, app.clock)
        self._threads = ThreadPool(config.threads_max)
        chain = make_chain(app.middleware, Invocation(self._threads))
        self._run_attempt = AttemptRunner(chain, app.clock, system.chance)
        self._stopping = asyncio.Event()
        self.ready = asyncio.Event()
        self._session: ConsumerSession | None = None
        self._followed: dict[str, int] = {}

    @property
    def abandoned_threads(self) -> int:
        return self._threads.abandoned

    def not_ready(self) -> str | None:
        """Why the worker is not ready; None if it is."""
        if self.ready.is_set():
            return self.metrics.error
        return self.metrics.error or "starting"

    def status(self) -> dict[str, Any]:
        return {**self.metrics.as_dict(), "followed": dict(self._followed)}

    def stop(self) -> None:
        """Starts no further call. `run` returns when the running calls have ended."""
        self._stopping.set()
        if self._session is not None:
            self._session.end()

    async def run(self) -> None:
        async with contextlib.AsyncExitStack() as stack:
            for resource in self._app.resources:
                await stack.enter_async_context(resource(self._log))
            consuming = asyncio.create_task(self._consume())
            others = [asyncio.create_task(self._follow(one)) for one in self._app.listeners]
            others.append(asyncio.create_task(self._count_dead_letters()))
            try:
                await consuming
            finally:
                for task in (consuming, *others):
                    task.cancel()
                await asyncio.gather(consuming, *others, return_exceptions=True)

    # -- calls ---------------------------------------------------------------------------------------

    async def _consume(self) -> None:
        """Runs one session after another. Log errors are retried, except where a retry cannot help."""
        backoff = PassBackoff(RETRY_SECONDS, RETRY_SECONDS_MAX)
        while not self._stopping.is_set():
            backoff.start()
            try:
                await self._run_session()
            except (WriterFenced, TransactionsUnsupported):
                raise
            except LogError as error:
                self.metrics.error = str(error)
                wait_s = backoff.next_s()
                logger.warning("session ended: %s; next session in %.1f s", error, wait_s)
                await sleep_unless(self._stopping, wait_s)
        self._threads.close()

    def new_session(self) -> ConsumerSession:
        """A session for a caller that drives it turn by turn."""
        return ConsumerSession(self._app, self._log, self._config, self._run_attempt, self.metrics)

    async def _run_session(self) -> None:
        session = self._session = self.new_session()
        try:
            await session.open(self._queues, self.name)
            self.metrics.error = None
            self.ready.set()
            with self._app.sending_by(session.writer, self._log):
                while not self._stopping.is_set():
                    await session.turn()
                await session.finish()
        finally:
            self.ready.clear()
            self._session = None
            await session.close()

    # -- beside the calls ----------------------------------------------------------------------------

    async def _follow(self, listener: Listener) -> None:
        """Runs one listener; its bridge is opened again after every log error."""
        app, backoff = self._app, Backoff(RETRY_SECONDS, RETRY_SECONDS_MAX)
        while True:
            try:
                bridge = await ListenerBridge.open(
                    listener, self._log, app.clock, app=app.name, worker=self.name
                )
                try:
                    while True:
                        count = await bridge.turn(READ_SECONDS)
                        self._followed[listener.name] = self._followed.get(listener.name, 0) + count
                        backoff.reset()
                finally:
                    await asyncio.shield(bridge.close())
            except LogError as error:
                wait_s = backoff.next_s()
                logger.warning("listener %s: %s; retry in %.1f s", listener.name, error, wait_s)
                await asyncio.sleep(wait_s)

    async def _count_dead_letters(self) -> None:
        """Counts the letters of each queue by task, and the records of their topics, which include those
        that compaction has not removed yet."""
        app = self._app
        counts = {
            queue: DeadLetterCounts(self._log, queue, app.tasks, UNDECLARED) for queue in app.queues
        }
        while True:
            for queue, letters in counts.items():
                with contextlib.suppress(LogError):
                    spans = await self._log.admin.spans(dead_topic(queue))
                    self.metrics.dead_records[queue] = sum(
                        span.end - span.start for span in spans.values()
                    )
                    self.metrics.dead_letters[queue] = await letters.update()
            await asyncio.sleep(DEAD_LETTERS_SECONDS)
