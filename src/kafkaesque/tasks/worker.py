"""A worker: one shift after the other until it is told to stop.

Trouble with the log ends a shift; the next one begins from what the group has committed.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Iterable

from kafkaesque.client.ports import Log, LogError, TransactionsUnsupported, WriterFenced
from kafkaesque.tasks import system
from kafkaesque.tasks.app import App
from kafkaesque.tasks.chain import Invocation, Judge, make_chain
from kafkaesque.tasks.config import TasksConfig
from kafkaesque.tasks.counts import Counts
from kafkaesque.tasks.shift import Shift
from kafkaesque.tasks.threads import Threads

logger = logging.getLogger(__name__)

LOG_RETRY_SECONDS = 0.5
LOG_RETRY_SECONDS_MAX = 15.0


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
        """Tells the workers of an application apart; a restarted one that keeps its name ends at once
        what its former life left open."""
        self._queues = sorted(queues or app.queues)
        self.counts = Counts(app.name, app.clock)
        self.counts.known = frozenset(app.tasks)
        self._threads = Threads(config.threads_max)
        chain = make_chain(app.middleware, Invocation(self._threads))
        self._judge = Judge(chain, app.clock, system.chance)
        self._stopping = asyncio.Event()
        self.ready = asyncio.Event()
        self._shift: Shift | None = None

    @property
    def abandoned_threads(self) -> int:
        return self._threads.abandoned

    def stop(self) -> None:
        """Begin nothing new; `run` returns when what is under way has ended."""
        self._stopping.set()
        if self._shift is not None:
            self._shift.wake.set()

    async def run(self) -> None:
        """Trouble with the log is waited out, except where waiting cannot help."""
        wait_s = LOG_RETRY_SECONDS
        while not self._stopping.is_set():
            try:
                await self.run_shift()
            except (WriterFenced, TransactionsUnsupported):
                raise
            except LogError as error:
                self.counts.error = str(error)
                logger.warning("%s; from the log's state again in %.1f s", error, wait_s)
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._stopping.wait(), wait_s)
                wait_s = min(2 * wait_s, LOG_RETRY_SECONDS_MAX)
        self._threads.close()

    def new_shift(self) -> Shift:
        """For those who drive a worker turn by turn."""
        return Shift(self._app, self._log, self._config, self._judge, self.counts)

    async def run_shift(self) -> None:
        """From opening everything to closing it, in order, whatever ends it."""
        working = self._shift = self.new_shift()
        try:
            await working.open(self._queues, self.name)
            self.counts.error = None
            self.ready.set()
            with self._app.sending_by(working.writer, self._log):
                while not self._stopping.is_set():
                    await working.turn()
                await working.finish()
        finally:
            self.ready.clear()
            self._shift = None
            await working.close()
