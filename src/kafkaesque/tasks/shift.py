"""One shift of a worker: from joining the group to leaving it, or to the next trouble with the log.

One task of the event loop owns the reader and does everything that needs it: reading, committing,
transactions. Every call is a task of its own, which ends with its consequences in the log (or, for an
effectively-once task, handed to the next transaction). A driver: the rules are the desk's.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from dataclasses import dataclass

from kafkaesque.client.ports import (
    Log,
    LogError,
    LogReader,
    LogWriter,
    Record,
    Subscription,
    WriterOptions,
)
from kafkaesque.events import tasks as words
from kafkaesque.model.ids import TopicPartition
from kafkaesque.tasks import system
from kafkaesque.tasks.app import App
from kafkaesque.tasks.chain import Judge, read_arguments
from kafkaesque.tasks.config import TasksConfig
from kafkaesque.tasks.consequences import consequences
from kafkaesque.tasks.counts import Counts
from kafkaesque.tasks.left import LeftReader
from kafkaesque.tasks.rules import outcome as reasons
from kafkaesque.tasks.rules.desk import Desk, DeskLimits
from kafkaesque.tasks.rules.holdings import Holdings, Item
from kafkaesque.tasks.rules.outcome import Again, Dead, Failure, Outcome
from kafkaesque.tasks.running import Running
from kafkaesque.tasks.trace import child_of

logger = logging.getLogger(__name__)

BUSY_WAIT_SECONDS = 0.02
"""How long a read waits while something is under way that will have to be committed."""
IDLE_WAIT_SECONDS = 0.5
COMMIT_TROUBLE_SECONDS_MAX = 15.0


@dataclass(frozen=True, slots=True)
class Ended:
    """A call of an effectively-once task that waits for its transaction."""

    item: Item
    records: list[Record]


class Shift:
    """What a worker holds open meanwhile. It is the reader's `client.ports.Rebalance` too."""

    def __init__(
        self,
        app: App,
        log: Log,
        config: TasksConfig,
        judge: Judge,
        counts: Counts,
    ) -> None:
        self._app = app
        self._log = log
        self._config = config
        self._judge = judge
        self._counts = counts
        self._reader: LogReader | None = None
        self._writers: list[LogWriter] = []
        self._desk = Desk(
            DeskLimits(
                held_max=config.held_records_max,
                held_bytes_max=config.held_bytes_max,
                delayed_max=config.delayed_records_max,
                read_max=config.read_records_max,
            ),
            app.tasks,
        )
        self._left = LeftReader(log, self._desk)
        self._running: dict[asyncio.Task[None], Item] = {}
        self._ended: list[Ended] = []
        self._paused: frozenset[TopicPartition] = frozenset()
        self._failure: LogError | None = None
        self._committed_s = app.clock.monotonic()
        self.wake = asyncio.Event()

    @property
    def writer(self) -> LogWriter:
        return self._writers[0]

    @property
    def reader(self) -> LogReader:
        if self._reader is None:
            raise LogError("the worker is not open")
        return self._reader

    async def open(self, queues: Iterable[str], name: str) -> None:
        """`name`: of the worker; a new one of the same name fences the old."""
        app = self._app
        await self._log.admin.ensure_topics(app.topics())
        self._writers.append(await self._log.open_writer(WriterOptions(linger_ms=1)))
        if any(task.policy.effectively_once for task in app.tasks.values()):
            options = WriterOptions(f"tasks.{app.name}@{name}", linger_ms=0)
            self._writers.append(await self._log.open_writer(options))
        if app.crons:
            await self.writer.send(app.cron_records(app.clock.wall_ms()))
        topics = [words.queue_topic(queue) for queue in queues]
        topics += [words.tier_topic(queue, tier) for queue in queues for tier in words.TIERS_MS]
        self._reader = await self._log.open_reader(
            Subscription(topics, f"tasks.{app.name}", listener=self)
        )

    # -- one turn ----------------------------------------------------------------------------------

    async def turn(self, wait_s: float | None = None) -> int:
        """Read, begin what may begin, settle what has ended; how many records came."""
        if wait_s is None:
            wait_s = self._wait_s()
        count_max = self._config.read_records_max
        records = await self.reader.read(min(count_max, self._desk.room()), wait_s)
        now_ms = self._app.clock.wall_ms()
        for record in records:
            self._desk.admit(record, now_ms)
        self._launch()
        for item in self._desk.overstayed():
            failure = Failure("HeldTooLong", "its partition could not go on behind it")
            self._spawn(item, Dead(reasons.HELD_TOO_LONG, failure))
        await self.settle()
        found = await self._left.turn(count_max, now_ms)
        if found:
            self._launch()
        await self._adjust_pauses()
        if self._failure is not None:
            raise self._failure
        return len(records) + found

    def _wait_s(self) -> float:
        if self._running or self._ended or self._left.is_busy or self._desk.points():
            return BUSY_WAIT_SECONDS
        due_ms = self._desk.next_due_ms
        if due_ms is None:
            return IDLE_WAIT_SECONDS
        wait_s = (due_ms - self._app.clock.wall_ms()) / 1000
        return min(IDLE_WAIT_SECONDS, max(0.0, wait_s))

    def _launch(self) -> None:
        self._desk.ripen(self._app.clock.wall_ms())
        while len(self._running) < self._config.concurrency:
            item = self._desk.take()
            if item is None:
                break
            self._spawn(item, item.dead)
        self._counts.held(self._desk.holdings, self._desk.left_count)

    def _spawn(self, item: Item, outcome: Outcome | None) -> None:
        self._counts.launched += 1
        task = asyncio.create_task(self._carry(item, outcome))
        self._running[task] = item
        task.add_done_callback(self._carried)

    def _carried(self, task: asyncio.Task[None]) -> None:
        del self._running[task]
        if not task.cancelled() and task.exception() is not None:
            error = task.exception()
            self._failure = error if isinstance(error, LogError) else LogError(repr(error))
        if self._failure is None and not self.wake.is_set():
            self._launch()

    async def _carry(self, item: Item, outcome: Outcome | None) -> None:
        """One attempt and all that follows from it."""
        app, call = self._app, item.call
        task = None if call is None else app.tasks.get(call.task_name)
        outputs: list[Record] = []
        if outcome is None and call is not None:
            if task is None:
                failure = Failure("UnknownTask", f"no task {call.task_name!r} in {app.name}")
                outcome = Dead(reasons.UNKNOWN_TASK, failure)
            else:
                arguments = read_arguments(task, call)
                if isinstance(arguments, Dead):
                    outcome = arguments
                else:
                    span = child_of(call.trace, system.new_id(), system.new_span_id())
                    running = Running(call, task, arguments, span)
                    started_s = app.clock.monotonic()
                    self._counts.begun(task.name, app.clock.wall_ms() - call.sent_ms)
                    outcome = await self._judge(running)
                    self._counts.took(task.name, app.clock.monotonic() - started_s)
                    outputs = running.outputs
        if outcome is not None:
            self._counts.ended(call.task_name if call else "", outcome)
            await self._follow(item, outcome, outputs)

    async def _follow(self, item: Item, outcome: Outcome, outputs: list[Record]) -> None:
        call = item.call
        task = None if call is None else self._app.tasks.get(call.task_name)
        now_ms = self._app.clock.wall_ms()
        if isinstance(outcome, Again):
            outputs = []
            if outcome.ordered and call is not None:
                call.attempt += 1
                self._desk.hold(item, now_ms + round(outcome.delay_s * 1000))
                return
        topic = words.results_topic(self._app.name).name
        records = consequences(item, task, outcome, now_ms, topic)
        self._desk.release(item)
        if task is not None and task.policy.effectively_once:
            kept = outputs if not isinstance(outcome, Dead) else []
            self._ended.append(Ended(item, [*kept, *records]))
            return
        if records:
            await self.writer.send(records)
        self._desk.finish(item)

    # -- settling ----------------------------------------------------------------------------------

    async def settle(self, *, now: bool = False) -> None:
        """Commit what has ended: in a transaction what asked for one, the rest from time to time."""
        if self._ended:
            await self._commit_together()
            return
        elapsed_s = self._app.clock.monotonic() - self._committed_s
        if now or elapsed_s * 1000 >= self._config.commit_interval_ms:
            await self._commit(elapsed_s)

    async def _commit(self, elapsed_s: float) -> None:
        points = self._desk.points()
        try:
            if points:
                await self.reader.commit(points)
        except LogError as error:
            # The group may be about to share out anew: the next read will tell. Nothing is lost by a
            # commit that comes later, unless it never does.
            if elapsed_s > COMMIT_TROUBLE_SECONDS_MAX:
                raise
            logger.info("not committed yet: %s", error)
            return
        self._desk.committed(points)
        self._committed_s = self._app.clock.monotonic()

    async def _commit_together(self) -> None:
        ended = [one for one in self._ended if self._desk.is_ours(one.item)]
        for one in self._ended:
            # Before the commit: if that fails, the shift is over, and the desk with it.
            self._desk.finish(one.item)
        self._ended = []
        if not ended:
            return
        points = self._desk.points()
        writer = self._writers[-1]
        async with writer.transaction():
            records = [record for one in ended for record in one.records]
            if records:
                await writer.send(records)
            await writer.send_offsets(self.reader, points)
        self._desk.committed(points)
        self._committed_s = self._app.clock.monotonic()

    async def _adjust_pauses(self) -> None:
        crowded = self._desk.crowded() & self.reader.assignment()
        if crowded != self._paused:
            await self.reader.pause(crowded - self._paused)
            await self.reader.resume((self._paused - crowded) & self.reader.assignment())
            self._paused = crowded

    # -- the group (client.ports.Rebalance) ----------------------------------------------------------

    async def assigned(self, places: frozenset[TopicPartition]) -> None:
        committed = await self.reader.committed(places)
        self._desk.assign({place: committed.get(place) for place in places})
        self._paused -= places

    async def revoked(self, places: frozenset[TopicPartition]) -> None:
        self._desk.withdraw(places)
        await self._wait_for(places, self._config.rebalance_grace_ms / 1000)
        await self.settle(now=True)
        await self.settle(now=True)
        self._desk.forget(places)
        self._paused -= places

    async def lost(self, places: frozenset[TopicPartition]) -> None:
        self._desk.forget(places)
        self._paused -= places

    async def _wait_for(self, places: frozenset[TopicPartition], grace_s: float) -> None:
        leaving = [task for task, item in self._running.items() if item.place in places]
        if leaving:
            await asyncio.wait(leaving, timeout=grace_s)

    # -- the end -------------------------------------------------------------------------------------

    async def idle(self) -> None:
        """Until nothing runs: for those who drive a worker turn by turn."""
        while self._running:
            await asyncio.wait(list(self._running))

    @property
    def is_searching(self) -> bool:
        """Whether calls that were left in the log are being read again, or are to be."""
        return self._left.is_busy or bool(self._desk.wanted())

    def next_offset(self, place: TopicPartition) -> int:
        """The lowest that may not have been read."""
        progress = self._desk.progress_of(place)
        return -1 if progress is None else progress.next_offset

    @property
    def next_due_ms(self) -> int | None:
        return self._desk.next_due_ms

    async def finish(self) -> None:
        """Let what is under way end, commit it; what has not begun is left to others."""
        self.wake.set()
        places = self.reader.assignment()
        self._desk.withdraw(places)
        await self._wait_for(places, self._config.stop_grace_ms / 1000)
        await self.settle(now=True)
        await self.settle(now=True)

    async def close(self) -> None:
        self.wake.set()
        for task in list(self._running):
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)
        self._desk = Desk(DeskLimits())
        self._counts.held(Holdings(), 0)
        try:
            await self._left.close()
            if self._reader is not None:
                await self._reader.close()
        finally:
            for writer in self._writers:
                await writer.close()
