"""One session of a worker in its consumer group: from joining it to leaving it or to a log error.

One asyncio task owns the consumer and does everything that needs it: reads, commits, transactions. Each
call runs in a task of its own, which ends when its follow-up records are in the log (or, for an
effectively-once task, queued for the next transaction). The rules are in `rules.scheduler`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from dataclasses import dataclass

from kafkaesque.client.ports import (
    Assignment,
    Log,
    LogError,
    LogReader,
    LogWriter,
    Record,
    Subscription,
    WriterOptions,
)
from kafkaesque.events import tasks as protocol
from kafkaesque.model.ids import Offset, TopicPartition
from kafkaesque.tasks import system
from kafkaesque.tasks.app import App
from kafkaesque.tasks.config import TasksConfig
from kafkaesque.tasks.execution import AttemptRunner, Running, read_arguments
from kafkaesque.tasks.metrics import WorkerMetrics
from kafkaesque.tasks.rules.in_flight import InFlightRecord, InFlightTracker
from kafkaesque.tasks.rules.offset_tracker import OffsetTracker
from kafkaesque.tasks.rules.outcome import (
    CallFailure,
    Dead,
    DeadReason,
    Outcome,
    RetryAfter,
    follow_up_records,
)
from kafkaesque.tasks.rules.scheduler import Scheduler, SchedulerLimits
from kafkaesque.tasks.rules.trace_context import child_of

logger = logging.getLogger(__name__)

BUSY_WAIT_SECONDS = 0.02
"""How long a read waits while calls run that will have to be committed."""
IDLE_WAIT_SECONDS = 0.5
COMMIT_FAILURE_SECONDS_MAX = 15.0


@dataclass(frozen=True, slots=True)
class _Uncommitted:
    """A finished call of an effectively-once task, and the records for its transaction."""

    item: InFlightRecord
    records: list[Record]


class ConsumerSession:
    """Joins the group with `open` and runs calls with `turn`. Implements `client.ports.Rebalance`."""

    def __init__(
        self,
        app: App,
        log: Log,
        config: TasksConfig,
        run_attempt: AttemptRunner,
        metrics: WorkerMetrics,
    ) -> None:
        self._app = app
        self._log = log
        self._config = config
        self._run_attempt = run_attempt
        self._metrics = metrics
        self._reader: LogReader | None = None
        self._writers: list[LogWriter] = []
        self._scheduler = Scheduler(
            SchedulerLimits(
                held_max=config.held_records_max,
                held_bytes_max=config.held_bytes_max,
                delayed_max=config.delayed_records_max,
                read_max=config.read_records_max,
            ),
            app.tasks,
        )
        self._deferred = _DeferredReader(log, self._scheduler)
        self._running: dict[asyncio.Task[None], InFlightRecord] = {}
        self._uncommitted: list[_Uncommitted] = []
        self._paused: frozenset[TopicPartition] = frozenset()
        self._failure: LogError | None = None
        self._committed_s = app.clock.monotonic()
        self._is_ending = False

    @property
    def writer(self) -> LogWriter:
        return self._writers[0]

    @property
    def reader(self) -> LogReader:
        if self._reader is None:
            raise LogError("the session is not open")
        return self._reader

    async def open(self, queues: Iterable[str], name: str) -> None:
        """`name` is the worker's. A new session of the same name fences the old one."""
        app = self._app
        await self._log.admin.ensure_topics(app.topics())
        self._writers.append(await self._log.open_writer(WriterOptions(linger_ms=1)))
        if any(task.policy.effectively_once for task in app.tasks.values()):
            options = WriterOptions(f"tasks.{app.name}@{name}", linger_ms=0)
            self._writers.append(await self._log.open_writer(options))
        if app.crons:
            await self.writer.send(app.cron_records(app.clock.wall_ms()))
        topics = [protocol.queue_topic(queue) for queue in queues]
        topics += [
            protocol.tier_topic(queue, tier) for queue in queues for tier in protocol.TIERS_MS
        ]
        self._reader = await self._log.open_reader(
            Subscription(topics, f"tasks.{app.name}", listener=self)
        )

    # -- one turn ----------------------------------------------------------------------------------

    async def turn(self, wait_s: float | None = None) -> int:
        """Reads, starts the calls that may start, commits what has ended. Returns the number of records
        that arrived."""
        if wait_s is None:
            wait_s = self._wait_s()
        count_max = self._config.read_records_max
        records = await self.reader.read(min(count_max, self._scheduler.read_limit()), wait_s)
        now_ms = self._app.clock.wall_ms()
        for record in records:
            self._scheduler.admit(record, now_ms)
        self._launch()
        for item in self._scheduler.evict_backoffs():
            failure = CallFailure(
                "HeldTooLong", "its backoff blocked the progress of its partition"
            )
            self._spawn(item, Dead(DeadReason.HELD_TOO_LONG, failure))
        await self.commit()
        readmitted = await self._deferred.turn(count_max, now_ms)
        if readmitted:
            self._launch()
        await self._adjust_pauses()
        if self._failure is not None:
            raise self._failure
        return len(records) + readmitted

    def _wait_s(self) -> float:
        if (
            self._running
            or self._uncommitted
            or self._deferred.is_busy
            or self._scheduler.commit_points()
        ):
            return BUSY_WAIT_SECONDS
        due_ms = self._scheduler.next_due_ms
        if due_ms is None:
            return IDLE_WAIT_SECONDS
        wait_s = (due_ms - self._app.clock.wall_ms()) / 1000
        return min(IDLE_WAIT_SECONDS, max(0.0, wait_s))

    def _launch(self) -> None:
        self._scheduler.promote_due(self._app.clock.wall_ms())
        while len(self._running) < self._config.concurrency:
            item = self._scheduler.take()
            if item is None:
                break
            self._spawn(item, item.dead)
        self._metrics.set_held(self._scheduler.in_flight, self._scheduler.deferred_count)

    def _spawn(self, item: InFlightRecord, outcome: Outcome | None) -> None:
        """Starts an attempt or, if its outcome is known already, only what follows from it."""
        self._metrics.launched += 1
        task = asyncio.create_task(self._process(item, outcome))
        self._running[task] = item
        task.add_done_callback(self._processed)

    def _processed(self, task: asyncio.Task[None]) -> None:
        del self._running[task]
        if not task.cancelled() and task.exception() is not None:
            error = task.exception()
            self._failure = error if isinstance(error, LogError) else LogError(repr(error))
        if self._failure is None and not self._is_ending:
            self._launch()

    async def _process(self, item: InFlightRecord, outcome: Outcome | None) -> None:
        """Runs one attempt and writes what follows from it."""
        app, call = self._app, item.call
        task = None if call is None else app.tasks.get(call.task_name)
        outputs: list[Record] = []
        if outcome is None and call is not None:
            if task is None:
                failure = CallFailure("UnknownTask", f"no task {call.task_name!r} in {app.name}")
                outcome = Dead(DeadReason.UNKNOWN_TASK, failure)
            else:
                arguments = read_arguments(task, call)
                if isinstance(arguments, Dead):
                    outcome = arguments
                else:
                    span = child_of(call.trace, system.new_id(), system.new_span_id())
                    running = Running(call, task, arguments, span)
                    started_s = app.clock.monotonic()
                    self._metrics.attempt_started(task.name, app.clock.wall_ms() - call.sent_ms)
                    outcome = await self._run_attempt(running)
                    self._metrics.attempt_took(task.name, app.clock.monotonic() - started_s)
                    outputs = running.outputs
        if outcome is not None:
            self._metrics.attempt_ended(call.task_name if call else "", outcome)
            await self._complete(item, outcome, outputs)

    async def _complete(
        self, item: InFlightRecord, outcome: Outcome, outputs: list[Record]
    ) -> None:
        call = item.call
        task = None if call is None else self._app.tasks.get(call.task_name)
        now_ms = self._app.clock.wall_ms()
        if isinstance(outcome, RetryAfter):
            outputs = []
            if outcome.ordered and call is not None:
                call.attempt += 1
                self._scheduler.back_off(item, now_ms + round(outcome.delay_s * 1000))
                return
        topic = protocol.results_topic(self._app.name).name
        records = follow_up_records(item.record, call, task, outcome, now_ms, topic)
        self._scheduler.release(item)
        if task is not None and task.policy.effectively_once:
            kept = outputs if not isinstance(outcome, Dead) else []
            self._uncommitted.append(_Uncommitted(item, [*kept, *records]))
            return
        if records:
            await self.writer.send(records)
        self._scheduler.finish(item)

    # -- commits -----------------------------------------------------------------------------------

    async def commit(self, *, now: bool = False) -> None:
        """Commits what has ended: effectively-once calls in a transaction, the others at intervals."""
        if self._uncommitted:
            await self._commit_transaction()
            return
        elapsed_s = self._app.clock.monotonic() - self._committed_s
        if now or elapsed_s * 1000 >= self._config.commit_interval_ms:
            await self._commit_offsets(elapsed_s)

    async def _commit_offsets(self, elapsed_s: float) -> None:
        points = self._scheduler.commit_points()
        try:
            if points:
                await self.reader.commit(points)
        except LogError as error:
            # The group may be about to rebalance; the next read handles that. A late commit loses
            # nothing, so only repeated failures end the session.
            if elapsed_s > COMMIT_FAILURE_SECONDS_MAX:
                raise
            logger.info("commit failed, will be repeated: %s", error)
            return
        self._scheduler.mark_committed(points)
        self._committed_s = self._app.clock.monotonic()

    async def _commit_transaction(self) -> None:
        ended = [one for one in self._uncommitted if self._scheduler.is_current(one.item)]
        for one in self._uncommitted:
            # Before the commit: if it fails, the session ends, and the scheduler with it.
            self._scheduler.finish(one.item)
        self._uncommitted = []
        if not ended:
            return
        points = self._scheduler.commit_points()
        writer = self._writers[-1]
        async with writer.transaction():
            records = [record for one in ended for record in one.records]
            if records:
                await writer.send(records)
            await writer.send_offsets(self.reader, points)
        self._scheduler.mark_committed(points)
        self._committed_s = self._app.clock.monotonic()

    async def _adjust_pauses(self) -> None:
        full = self._scheduler.partitions_to_pause() & self.reader.assignment()
        if full != self._paused:
            await self.reader.pause(full - self._paused)
            await self.reader.resume((self._paused - full) & self.reader.assignment())
            self._paused = full

    # -- rebalances (client.ports.Rebalance) ---------------------------------------------------------

    async def assigned(self, places: frozenset[TopicPartition]) -> None:
        committed = await self.reader.committed(places)
        self._scheduler.assign({place: committed.get(place) for place in places})
        self._paused -= places

    async def revoked(self, places: frozenset[TopicPartition]) -> None:
        self._scheduler.withdraw(places)
        await self._wait_for_running(places, self._config.rebalance_grace_ms / 1000)
        await self._commit_all()
        self._scheduler.forget(places)
        self._paused -= places

    async def lost(self, places: frozenset[TopicPartition]) -> None:
        self._scheduler.forget(places)
        self._paused -= places

    async def _wait_for_running(self, places: frozenset[TopicPartition], grace_s: float) -> None:
        leaving = [task for task, item in self._running.items() if item.place in places]
        if leaving:
            await asyncio.wait(leaving, timeout=grace_s)

    async def _commit_all(self) -> None:
        # The first may be a transaction; then the second commits the offsets of all other calls.
        await self.commit(now=True)
        await self.commit(now=True)

    # -- driven by a tester --------------------------------------------------------------------------

    async def wait_idle(self) -> None:
        """Returns when no call runs."""
        while self._running:
            await asyncio.wait(list(self._running))

    @property
    def is_rereading(self) -> bool:
        """Whether deferred calls are being read again or are about to be."""
        return self._deferred.is_busy or bool(self._scheduler.rereads_needed())

    def next_offset(self, place: TopicPartition) -> int:
        """The lowest offset that may not have been read."""
        tracker = self._scheduler.tracker_of(place)
        return -1 if tracker is None else tracker.next_offset

    @property
    def next_due_ms(self) -> int | None:
        return self._scheduler.next_due_ms

    # -- the end -------------------------------------------------------------------------------------

    def end(self) -> None:
        """No further call starts."""
        self._is_ending = True

    async def finish(self) -> None:
        """Waits for running calls and commits them. Calls that have not started are left to others."""
        self.end()
        places = self.reader.assignment()
        self._scheduler.withdraw(places)
        await self._wait_for_running(places, self._config.stop_grace_ms / 1000)
        await self._commit_all()

    async def close(self) -> None:
        self.end()
        for task in list(self._running):
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)
        self._scheduler = Scheduler(SchedulerLimits())
        self._metrics.set_held(InFlightTracker(), 0)
        try:
            await self._deferred.close()
            if self._reader is not None:
                await self._reader.close()
        finally:
            for writer in self._writers:
                await writer.close()


class _DeferredReader:
    """Reads deferred records again, with a reader of its own; the session's consumer continues meanwhile.

    The reader is opened on first use.
    """

    def __init__(self, log: Log, scheduler: Scheduler) -> None:
        self._log = log
        self._scheduler = scheduler
        self._reader: LogReader | None = None
        self._rereads: dict[TopicPartition, OffsetTracker] = {}

    @property
    def is_busy(self) -> bool:
        return bool(self._rereads)

    async def turn(self, count_max: int, now_ms: int) -> int:
        """Starts the rereads that are needed and continues the others. Returns how many records were
        readmitted."""
        scheduler = self._scheduler
        needed = {
            place: offset
            for place, offset in scheduler.rereads_needed().items()
            if place not in self._rereads
        }
        if not needed and not self._rereads:
            return 0
        if self._reader is None:
            self._reader = await self._log.open_reader(Assignment({}))
        reader = self._reader
        if needed:
            await reader.add(needed)
        for place in needed:
            tracker = scheduler.tracker_of(place)
            if tracker is not None:
                tracker.start_reread()
                self._rereads[place] = tracker
        records = await reader.read(count_max, 0)
        readmitted = sum(
            scheduler.readmit(record, now_ms) is not None
            for record in records
            if self._rereads.get(TopicPartition(record.topic, record.partition))
            is scheduler.tracker_of(TopicPartition(record.topic, record.partition))
        )
        await self._end_rereads(reader)
        return readmitted

    async def _end_rereads(self, reader: LogReader) -> None:
        positions = await reader.positions()
        ended = []
        for place, tracker in self._rereads.items():
            if self._scheduler.tracker_of(place) is not tracker or not tracker.is_rereading:
                ended.append(place)
            elif positions.get(place, Offset(-1)) >= tracker.next_offset:
                spans = await self._log.admin.spans(place.topic)
                tracker.end_reread(spans[place].start)
                logger.warning(
                    "%s: not all deferred calls were found again; retention may have deleted them",
                    place,
                )
                ended.append(place)
        for place in ended:
            del self._rereads[place]
        await reader.drop(ended)

    async def close(self) -> None:
        if self._reader is not None:
            await self._reader.close()
