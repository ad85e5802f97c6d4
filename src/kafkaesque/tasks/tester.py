"""Tests of tasks without waiting: a virtual clock, and a log in memory or a broker of the test's own.

    async with TaskTester(app) as tester:
        await remind.send_after(24 * 3600, user="ann")
        await tester.advance(hours=24)
        assert tester.done("remind") == [{"user": "ann"}]

    with Broker() as broker:
        async with TaskTester(app, bootstrap_servers=broker.bootstrap_servers) as tester: ...

Workers, timers, listeners, retries and dead letters are the real ones; only the clock, and without a
broker the log, are not. A task that itself sleeps, sleeps for real.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any, Self

from kafkaesque.client.dead_letters import DeadLetter, read_dead_letters
from kafkaesque.client.memory import MemoryLog
from kafkaesque.client.ports import Log, Received, WriterOptions
from kafkaesque.client.reading import read_stretch
from kafkaesque.events import tasks as words
from kafkaesque.events.topics import TopicSpec
from kafkaesque.model.errors import check
from kafkaesque.model.ids import PartitionIndex, TimestampMs
from kafkaesque.tasks.app import App
from kafkaesque.tasks.config import TasksConfig
from kafkaesque.tasks.counts import Counts
from kafkaesque.tasks.listening import Bridge
from kafkaesque.tasks.log_watch import LogWatch
from kafkaesque.tasks.running import Running
from kafkaesque.tasks.shift import Shift
from kafkaesque.tasks.system import SystemClock
from kafkaesque.tasks.timers.owner import TimerCounts, TimerOwner
from kafkaesque.tasks.worker import Worker

START_MS = 1_800_000_000_000
TURN_SECONDS = 0.05
"""How long a worker waits for a broker's records."""
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

    def __init__(
        self, app: App, *, start_ms: int | None = None, bootstrap_servers: str | None = None
    ) -> None:
        """Without `bootstrap_servers` the log is in memory. On a broker, topics that are there stay as
        they are: one tester, one broker, unless the applications differ."""
        self.app = app
        self.log: Log
        self._watch_log: LogWatch | None = None
        if bootstrap_servers is None:
            self.log = MemoryLog()
            self.clock = VirtualClock(START_MS if start_ms is None else start_ms)
        else:
            from kafkaesque.client.kafka import KafkaLog

            self.log = KafkaLog(bootstrap_servers, client_id="task-tester")
            # Of the broker's time: it refuses what is much older or newer.
            self.clock = VirtualClock(SystemClock().wall_ms() if start_ms is None else start_ms)
            self._watch_log = LogWatch(self.log)
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
        stack.push_async_callback(log.close)
        listened = [listener.topic for listener in app.listeners]
        topics = [*app.topics(), words.TIMERS_DEAD, *listened]
        await log.admin.ensure_topics(_timeless(topic) for topic in topics)
        if self._watch_log is not None:
            stack.push_async_callback(self._watch_log.close)
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
        await working.open(app.queues, worker.name)
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
            count += await working.turn(0 if self._watch_log is None else TURN_SECONDS)
            await working.idle()
            await working.settle(now=True)
            count += counts.launched
            due_ms = working.next_due_ms
            is_due = due_ms is not None and due_ms <= self.clock.wall_ms()
            if count or is_due or working.is_searching:
                continue
            if await self._has_read_all(working):
                return
        raise RuntimeError("it never settles: does a task call itself?")

    async def _has_read_all(self, working: Shift) -> bool:
        """A log in memory hands out all it has at once; a broker needs its time."""
        if self._watch_log is None:
            return True
        listened = {listener.topic.name for listener in self.app.listeners}
        queues = {
            topic
            for queue in self.app.queues
            for topic in (words.queue_topic(queue), *_tier_topics(queue))
        }
        last = await self._watch_log.last_offsets({words.TIMERS.name, *queues, *listened})
        for place, offset in last.items():
            if place.topic in queues and working.next_offset(place) <= offset:
                return False
            if place.topic == words.TIMERS.name:
                owner = self._owners[place.partition]
                if not owner.is_caught_up or await owner.next_offset() <= offset:
                    return False
            for bridge in self._bridges:
                if bridge.topic == place.topic and await bridge.next_offset(place) <= offset:
                    return False
        return all(owner.is_caught_up for owner in self._owners)

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
        """What stands in a topic of a log in memory; of a broker, `read_records` tells."""
        if not isinstance(self.log, MemoryLog):
            raise TypeError("on a broker: await tester.read_records(topic)")
        return self.log.records(topic)

    async def read_records(self, topic: str) -> list[Received]:
        spans = await self.log.admin.spans(topic)
        return [record async for batch in read_stretch(self.log, spans) for record in batch]

    async def dead_letters(self, queue: str | None = None) -> list[DeadLetter]:
        return list((await read_dead_letters(self.log, queue or self.app.name)).values())


def _tier_topics(queue: str) -> list[str]:
    return [words.tier_topic(queue, tier) for tier in words.TIERS_MS]


def _timeless(topic: TopicSpec) -> TopicSpec:
    """Its records may be of whatever time the virtual clock shows, and stay."""
    configs = {**topic.configs, "retention.ms": "-1", "message.timestamp.type": "CreateTime",
               "message.timestamp.after.max.ms": str(2**63 - 1),
               "message.timestamp.before.max.ms": str(2**63 - 1)}  # fmt: skip
    return replace(topic, configs=configs)
