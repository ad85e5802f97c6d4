"""A test kit for tasks: a virtual clock, and a log in memory or on a broker of the test.

    async with TaskTester(app) as tester:
        await remind.send_after(24 * 3600, user="ann")
        await tester.advance(hours=24)
        assert tester.done("remind") == [{"user": "ann"}]

    with Broker() as broker:
        async with TaskTester(app, bootstrap_servers=broker.bootstrap_servers) as tester: ...

Workers, timers, listeners, retries and dead letters are real; only the clock and, without a broker, the log
are simulated. A task that sleeps sleeps in real time.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any, Self

from kafkaesque.client.dead_letters import DeadLetter, read_dead_letters
from kafkaesque.client.memory import MemoryLog
from kafkaesque.client.ports import Assignment, Log, LogReader, Received, WriterOptions
from kafkaesque.client.reading import read_stretch
from kafkaesque.events import tasks as protocol
from kafkaesque.events.topics import TopicSpec
from kafkaesque.model.errors import check
from kafkaesque.model.ids import Offset, PartitionIndex, TimestampMs, TopicPartition
from kafkaesque.service.clock import SystemClock
from kafkaesque.tasks.app import App
from kafkaesque.tasks.config import TasksConfig
from kafkaesque.tasks.execution import Running
from kafkaesque.tasks.listener import ListenerBridge
from kafkaesque.tasks.metrics import WorkerMetrics
from kafkaesque.tasks.session import ConsumerSession
from kafkaesque.tasks.timers.metrics import TimerMetrics
from kafkaesque.tasks.timers.owner import TimerOwner
from kafkaesque.tasks.worker import Worker

START_MS = 1_800_000_000_000
TURN_SECONDS = 0.05
"""How long a read waits for records of a broker."""
ROUNDS_MAX = 100_000
"""More rounds than this mean that a task calls itself."""


class VirtualClock:
    """A clock that does not move by itself."""

    def __init__(self, start_ms: int = START_MS) -> None:
        self._start_ms = start_ms
        self._now_ms = start_ms

    def wall_ms(self) -> TimestampMs:
        return TimestampMs(self._now_ms)

    def monotonic(self) -> float:
        return (self._now_ms - self._start_ms) / 1000

    def move_to(self, now_ms: int) -> None:
        check(now_ms >= self._now_ms, "a virtual clock only moves forward")
        self._now_ms = now_ms


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt that ran during the test."""

    task: str
    arguments: dict[str, Any]
    attempt: int
    at_ms: int
    error: Exception | None


class TaskTester:
    """A worker, timers and a log for one application, inside one test."""

    def __init__(
        self, app: App, *, start_ms: int | None = None, bootstrap_servers: str | None = None
    ) -> None:
        """Without `bootstrap_servers` the log is in memory. On a broker, existing topics stay as they
        are, so use one broker per tester, unless the applications differ."""
        self.app = app
        self.log: Log
        self._last_offsets: _LastOffsets | None = None
        if bootstrap_servers is None:
            self.log = MemoryLog()
            self.clock = VirtualClock(START_MS if start_ms is None else start_ms)
        else:
            from kafkaesque.client.kafka import KafkaLog

            self.log = KafkaLog(bootstrap_servers, client_id="task-tester")
            # Starts at the broker's time: it rejects records that are much older or newer.
            self.clock = VirtualClock(SystemClock().wall_ms() if start_ms is None else start_ms)
            self._last_offsets = _LastOffsets(self.log)
        self.attempts: list[Attempt] = []
        self._owners: list[TimerOwner] = []
        self._bridges: list[ListenerBridge] = []
        self._session: ConsumerSession | None = None
        self._metrics: WorkerMetrics | None = None
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
        app.middleware.insert(0, self._observe)
        stack.callback(app.middleware.remove, self._observe)
        stack.push_async_callback(log.close)
        listened = [listener.topic for listener in app.listeners]
        topics = [*app.topics(), protocol.TIMERS_DEAD, *listened]
        await log.admin.ensure_topics(_without_retention(topic) for topic in topics)
        if self._last_offsets is not None:
            stack.push_async_callback(self._last_offsets.close)
        for resource in app.resources:
            await stack.enter_async_context(resource(log))
        config = TasksConfig()
        for number in range(protocol.TIMERS.partitions):
            partition = PartitionIndex(number)
            owner = TimerOwner(log, partition, None, self.clock, config, TimerMetrics())
            stack.push_async_callback(owner.close)
            await owner.open()
            self._owners.append(owner)
        for listener in app.listeners:
            bridge = await ListenerBridge.open(
                listener, log, self.clock, app=app.name, worker="tester"
            )
            stack.push_async_callback(bridge.close)
            self._bridges.append(bridge)
        worker = Worker(app, log, config, name="tester")
        self._metrics = worker.metrics
        session = self._session = worker.new_session()
        stack.push_async_callback(session.close)
        await session.open(app.queues, worker.name)
        await stack.enter_async_context(self._connected())

    @contextlib.asynccontextmanager
    async def _connected(self) -> AsyncIterator[None]:
        writer = await self.log.open_writer(WriterOptions())
        with self.app.sending_by(writer, self.log):
            yield
        await self.app.results.close()
        await writer.close()

    async def _observe(self, running: Running, inner: Any) -> Any:
        failure: Exception | None = None
        try:
            return await inner(running)
        except Exception as error:
            # Recorded for the test; the worker decides the outcome.
            failure = error
            raise
        finally:
            call, now_ms = running.call, self.clock.wall_ms()
            attempt = Attempt(
                call.task_name, dict(running.arguments), call.attempt, now_ms, failure
            )
            self.attempts.append(attempt)

    # -- time ----------------------------------------------------------------------------------------

    async def settle(self) -> None:
        """Returns when everything that is due by the current clock has happened."""
        session, metrics = self._session, self._metrics
        if session is None or metrics is None:
            return
        for _ in range(ROUNDS_MAX):
            count = -metrics.launched
            for bridge in self._bridges:
                count += await bridge.turn(0)
            for owner in self._owners:
                count += await owner.turn(0)
            count += await session.turn(0 if self._last_offsets is None else TURN_SECONDS)
            await session.wait_idle()
            await session.commit(now=True)
            count += metrics.launched
            due_ms = session.next_due_ms
            is_due = due_ms is not None and due_ms <= self.clock.wall_ms()
            if count or is_due or session.is_rereading:
                continue
            if await self._has_read_all(session):
                return
        raise RuntimeError("the calls never end: does a task call itself?")

    async def _has_read_all(self, session: ConsumerSession) -> bool:
        """A log in memory delivers all records at once; a broker may need longer."""
        if self._last_offsets is None:
            return True
        listened = {listener.topic.name for listener in self.app.listeners}
        queues = {
            topic
            for queue in self.app.queues
            for topic in (protocol.queue_topic(queue), *_tier_topics(queue))
        }
        last = await self._last_offsets.read({protocol.TIMERS.name, *queues, *listened})
        for place, offset in last.items():
            if place.topic in queues and session.next_offset(place) <= offset:
                return False
            if place.topic == protocol.TIMERS.name:
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
        """Moves the clock, stopping at every time at which something is due."""
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
        if self._session is not None:
            times.append(self._session.next_due_ms)
        return min((time_ms for time_ms in times if time_ms is not None), default=None)

    # -- what happened -------------------------------------------------------------------------------

    def done(self, task: str) -> list[dict[str, Any]]:
        """The arguments of calls that succeeded, in order."""
        return [one.arguments for one in self.attempts if one.task == task and one.error is None]

    def failed(self, task: str) -> list[Attempt]:
        return [one for one in self.attempts if one.task == task and one.error is not None]

    def records(self, topic: str) -> list[Received]:
        """The records of a topic of a log in memory. On a broker, use `read_records`."""
        if not isinstance(self.log, MemoryLog):
            raise TypeError("on a broker: await tester.read_records(topic)")
        return self.log.records(topic)

    async def read_records(self, topic: str) -> list[Received]:
        spans = await self.log.admin.spans(topic)
        return [record async for batch in read_stretch(self.log, spans) for record in batch]

    async def dead_letters(self, queue: str | None = None) -> list[DeadLetter]:
        return list((await read_dead_letters(self.log, queue or self.app.name)).values())


class _LastOffsets:
    """The offset of the last record of each partition, found by reading everything.

    The end of a partition would not do: transaction markers may be there, which a consumer never sees.
    """

    def __init__(self, log: Log) -> None:
        self._log = log
        self._reader: LogReader | None = None
        self._last: dict[TopicPartition, Offset] = {}

    async def read(self, topics: Iterable[str]) -> dict[TopicPartition, Offset]:
        """For each partition that has records: the offset of the current last one."""
        spans = {
            place: span
            for topic in sorted(topics)
            for place, span in (await self._log.admin.spans(topic)).items()
        }
        if self._reader is None:
            self._reader = await self._log.open_reader(Assignment({}))
        reader = self._reader
        new = {place: span.start for place, span in spans.items()}
        await reader.add({place: new[place] for place in new.keys() - reader.assignment()})
        while True:
            positions = await reader.positions()
            if all(positions[place] >= span.end for place, span in spans.items()):
                return dict(self._last)
            for record in await reader.read(wait_s=TURN_SECONDS):
                self._last[TopicPartition(record.topic, record.partition)] = record.offset

    async def close(self) -> None:
        if self._reader is not None:
            await self._reader.close()


def _tier_topics(queue: str) -> list[str]:
    return [protocol.tier_topic(queue, tier) for tier in protocol.TIERS_MS]


def _without_retention(topic: TopicSpec) -> TopicSpec:
    """The topic accepts records of any time, as the virtual clock needs it, and keeps them."""
    configs = {**topic.configs, "retention.ms": "-1", "message.timestamp.type": "CreateTime",
               "message.timestamp.after.max.ms": str(2**63 - 1),
               "message.timestamp.before.max.ms": str(2**63 - 1)}  # fmt: skip
    return replace(topic, configs=configs)
