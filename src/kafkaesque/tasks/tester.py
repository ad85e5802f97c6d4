"""Tests of tasks without broker, threads of waiting, or waiting: a log in memory and a virtual clock.

    async with TaskTester(app) as tester:
        await remind.send_after(24 * 3600, user="ann")
        await tester.advance(hours=24)
        assert tester.done("remind") == [{"user": "ann"}]

Workers, timers, listeners, retries and dead letters are the real ones; only the log and the clock are
not. A task that itself sleeps, sleeps for real.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

from kafkaesque.client.memory import MemoryLog
from kafkaesque.client.ports import Received, WriterOptions
from kafkaesque.events import tasks as words
from kafkaesque.model.errors import check
from kafkaesque.model.ids import PartitionIndex, TimestampMs
from kafkaesque.tasks.app import App
from kafkaesque.tasks.config import TasksConfig
from kafkaesque.tasks.counts import Counts
from kafkaesque.tasks.dead_letters import Letter, read_letters
from kafkaesque.tasks.listening import Bridge
from kafkaesque.tasks.running import Running
from kafkaesque.tasks.shift import Shift
from kafkaesque.tasks.timers.owner import TimerCounts, TimerOwner
from kafkaesque.tasks.worker import Worker

START_MS = 1_800_000_000_000
ROUNDS_MAX = 100_000
"""More than that without an end is a task that calls itself."""


class VirtualClock:
    """Stands still until it is moved."""

    def __init__(self, start_ms: int = START_MS) -> None:
        self._start_ms = start_ms
        self._now_ms = start_ms

    def wall_ms(self) -> TimestampMs:
        return TimestampMs(self._now_ms)

    def monotonic(self) -> float:
        return (self._now_ms - self._start_ms) / 1000

    def move_to(self, now_ms: int) -> None:
        check(now_ms >= self._now_ms, "a virtual clock only goes forward")
        self._now_ms = now_ms


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt that a tester saw."""

    task: str
    arguments: dict[str, Any]
    attempt: int
    at_ms: int
    error: Exception | None


class TaskTester:
    """Everything an application needs, inside one test."""

    def __init__(self, app: App, *, start_ms: int = START_MS) -> None:
        self.app = app
        self.clock = VirtualClock(start_ms)
        self.log = MemoryLog()
        self.attempts: list[Attempt] = []
        self._owners: list[TimerOwner] = []
        self._bridges: list[Bridge] = []
        self._working: Shift | None = None
        self._counts: Counts | None = None
        self._stack = contextlib.AsyncExitStack()

    async def __aenter__(self) -> Self:
        async with contextlib.AsyncExitStack() as stack:
            await self._open(stack)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._stack.aclose()

    async def _open(self, stack: contextlib.AsyncExitStack) -> None:
        app, log = self.app, self.log
        before, app.clock = app.clock, self.clock
        stack.callback(setattr, app, "clock", before)
        app.middleware.insert(0, self._watch)
        stack.callback(app.middleware.remove, self._watch)
        await log.ensure_topics([*app.topics(), words.TIMERS_DEAD])
        for resource in app.resources:
            await stack.enter_async_context(resource(log))
        config = TasksConfig()
        for number in range(words.TIMERS.partitions):
            partition = PartitionIndex(number)
            owner = TimerOwner(log, partition, None, self.clock, config, TimerCounts())
            stack.push_async_callback(owner.close)
            await owner.open()
            self._owners.append(owner)
        for listener in app.listeners:
            bridge = await Bridge.open(listener, log, self.clock, app=app.name, worker="tester")
            stack.push_async_callback(bridge.close)
            self._bridges.append(bridge)
        worker = Worker(app, log, config, name="tester")
        self._counts = worker.counts
        working = self._working = worker.new_shift()
        stack.push_async_callback(working.close)
        await working.open(app.queues)
        await stack.enter_async_context(self._connected())

    @contextlib.asynccontextmanager
    async def _connected(self) -> AsyncIterator[None]:
        writer = await self.log.open_writer(WriterOptions())
        with self.app.sending_by(writer, self.log):
            yield
        await self.app.results.close()
        await writer.close()

    async def _watch(self, running: Running, inner: Any) -> Any:
        failure: Exception | None = None
        try:
            return await inner(running)
        except Exception as error:
            # Noted for the test; the judge outside decides what becomes of the call.
            failure = error
            raise
        finally:
            call, now_ms = running.call, self.clock.wall_ms()
            attempt = Attempt(
                call.task_name, dict(running.arguments), call.attempt, now_ms, failure
            )
            self.attempts.append(attempt)

    # -- moving on -----------------------------------------------------------------------------------

    async def settle(self) -> None:
        """Until everything that is due by the clock as it stands has happened."""
        working, counts = self._working, self._counts
        if working is None or counts is None:
            return
        for _ in range(ROUNDS_MAX):
            count = -counts.launched
            for bridge in self._bridges:
                count += await bridge.turn(0)
            for owner in self._owners:
                count += await owner.turn(0)
            count += await working.turn(0)
            await working.idle()
            await working.settle(now=True)
            count += counts.launched
            due_ms = working.next_due_ms
            if count == 0 and (due_ms is None or due_ms > self.clock.wall_ms()):
                return
        raise RuntimeError("it never settles: does a task call itself?")

    async def advance(
        self, seconds: float = 0.0, *, minutes: float = 0.0, hours: float = 0.0, days: float = 0.0
    ) -> None:
        """Move the clock, stopping wherever something is due on the way."""
        total_s = seconds + 60 * (minutes + 60 * (hours + 24 * days))
        target_ms = self.clock.wall_ms() + round(total_s * 1000)
        await self.settle()
        while (due_ms := await self.next_due_ms()) is not None and due_ms <= target_ms:
            self.clock.move_to(max(due_ms, self.clock.wall_ms()))
            await self.settle()
        self.clock.move_to(target_ms)
        await self.settle()

    async def next_due_ms(self) -> int | None:
        times = [await owner.next_due_ms() for owner in self._owners]
        if self._working is not None:
            times.append(self._working.next_due_ms)
        return min((time_ms for time_ms in times if time_ms is not None), default=None)

    # -- what happened -------------------------------------------------------------------------------

    def done(self, task: str) -> list[dict[str, Any]]:
        """Arguments of the calls that succeeded, in order."""
        return [one.arguments for one in self.attempts if one.task == task and one.error is None]

    def failed(self, task: str) -> list[Attempt]:
        return [one for one in self.attempts if one.task == task and one.error is not None]

    def records(self, topic: str) -> list[Received]:
        return self.log.records(topic)

    async def dead_letters(self, queue: str | None = None) -> list[Letter]:
        return list((await read_letters(self.log, queue or self.app.name)).values())
