"""Starts a named query, watches it, and stops it between two batches.

A query is asked to stop by a file in its directory (`control.py`). The batch under way is finished;
the next one is refused before its first row is written, and Spark plans the very same batch again
at the next start.
"""

from __future__ import annotations

import json
import logging
import re
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from kafkaesque.pipeline.errors import PipelineError
from kafkaesque.pipeline.operate.catalog import Query
from kafkaesque.pipeline.operate.context import Context
from kafkaesque.pipeline.operate.progress import Metrics, ProgressBook
from kafkaesque.pipeline.operate.restarting import Restarts
from kafkaesque.pipeline.operate.upkeep import is_due, keep_own_tables
from kafkaesque.pipeline.sinks.delta_table import BatchIdentity, refuse_other_checkpoint
from kafkaesque.pipeline.source.durable_start import CheckpointLock, identity
from kafkaesque.pipeline.source.options import read_cluster
from kafkaesque.pipeline.source.reading import read_stream

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

log = logging.getLogger(__name__)

POLL_S = 0.2
SOURCE_START_S_MAX = 30.0
_STARTING = ("Initializing", "Getting offsets")
"""What Spark says of a query that has not asked its source for the first time yet."""
_RAISED = re.compile(r"^(?:kafkaesque[\w.]*\.)?([A-Z]\w*(?:: .+)?)$", re.MULTILINE)
_REASON_LENGTH_MAX = 2000
_STOP_WORD = "kafkaesque: stopped between batches"


@dataclass(frozen=True, slots=True)
class Trigger:
    """How often a batch is made; `once` reads what is there and ends."""

    interval_s: float = 0.0
    once: bool = False
    rows_max: int | None = None
    start: str = "earliest"
    """Where a query begins that has no checkpoint yet."""
    restarts_max: int = 0
    """How often in a row a query that fails is started again (`restarting.py`)."""


class BatchGate:
    """Lets batches through until it is closed."""

    def __init__(self) -> None:
        self._closed = threading.Event()

    def close(self) -> None:
        self._closed.set()

    @property
    def is_closed(self) -> bool:
        return self._closed.is_set()

    def pass_through(self) -> None:
        if self._closed.is_set():
            # The only way to refuse a batch from inside: to return would count it as done.
            raise PipelineError(_STOP_WORD)


class RunningQuery:
    """One query between start and end; the lock on its checkpoint is held as long."""

    def __init__(
        self, query: Query, streaming: StreamingQuery, gate: BatchGate, lock: CheckpointLock
    ) -> None:
        self.query = query
        self.streaming = streaming
        self._gate = gate
        self._lock = lock

    @property
    def is_active(self) -> bool:
        return bool(self.streaming.isActive)

    def await_source(self, stopping: threading.Event) -> None:
        """Until the processes of its source have started, or a while has passed.

        Spark gives each ten seconds; on a busy machine those of several queries at once need more.
        """
        deadline = time.monotonic() + SOURCE_START_S_MAX
        while self.is_active and time.monotonic() < deadline and not stopping.is_set():
            message = str(self.streaming.status["message"])
            if self.streaming.lastProgress is not None or not message.startswith(_STARTING):
                return
            time.sleep(POLL_S)

    def request_stop(self) -> None:
        """Close the gate, and end an idle query at once."""
        self._gate.close()
        if self.is_active and not self.streaming.status["isTriggerActive"]:
            self.streaming.stop()

    def settle(self) -> str | None:
        """After the end: let go of the checkpoint; returns why it failed, if it did."""
        self._lock.release()
        error = self.streaming.exception()
        if error is None or _STOP_WORD in str(error):
            return None
        return _reason(str(error))


def _reason(text: str) -> str:
    """The exception that a Python traceback inside ends in, else Spark's own first line."""
    text = text.partition("=== Streaming Query")[0]
    raised = _RAISED.findall(text)
    return (raised[-1] if raised else text.strip().partition("\n")[0])[:_REASON_LENGTH_MAX]


def start_query(
    query: Query, context: Context, trigger: Trigger, book: ProgressBook | None = None
) -> RunningQuery:
    """CheckpointInUse, CheckpointLost or an InvalidOption before anything is read."""
    checkpoint = context.places.checkpoint(query.name)
    lock = CheckpointLock.take(checkpoint)
    try:
        own = identity(checkpoint)
        for table in query.tables:
            refuse_other_checkpoint(context.table(table.name), query.name, own)
        options = context.source_options(
            startingOffsets=trigger.start, **query.subscription(context.knobs)
        )
        if trigger.rows_max is not None:
            options["maxOffsetsPerTrigger"] = str(trigger.rows_max)
        records = read_stream(context.spark, options, checkpoint=checkpoint, engine=context.engine)
        gate = BatchGate()
        writer = (
            query.transform(records, context.knobs)
            .writeStream.queryName(query.name)
            .outputMode(query.mode)
            .option("checkpointLocation", str(checkpoint))
            .foreachBatch(_each_batch(query, context, own, gate))
        )
        if trigger.once:
            writer = writer.trigger(availableNow=True)
        else:
            writer = writer.trigger(processingTime=f"{int(trigger.interval_s * 1000)} milliseconds")
        if book is not None:
            book.announce(query.name)
        streaming = writer.start()
    except BaseException:
        # The query does not run, so another may have its checkpoint; the error goes on.
        lock.release()
        raise
    return RunningQuery(query, streaming, gate, lock)


def _each_batch(
    query: Query, context: Context, checkpoint_id: str, gate: BatchGate
) -> Callable[[DataFrame, int], None]:
    def write(rows: DataFrame, batch: int) -> None:
        gate.pass_through()
        query.write(rows, BatchIdentity(query.name, checkpoint_id, batch), context)
        if is_due(context.knobs, batch) and context.tables is None:
            keep_own_tables(query.tables, context, datetime.now(tz=UTC))

    return write


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a query ended."""

    query: str
    failure: str | None


@dataclass(slots=True)
class _Slot:
    """A query in one of its lives, or between two."""

    query: Query
    restarts: Restarts
    running: RunningQuery | None
    due_s: float = 0.0


class Supervisor:
    """Runs several queries in one session until each has ended or was asked to stop."""

    def __init__(
        self,
        context: Context,
        trigger: Trigger,
        metrics: Metrics,
        stopping: threading.Event | None = None,
    ) -> None:
        """`stopping` may be set by another thread or a signal handler: it asks all to stop."""
        self._context = context
        self._trigger = trigger
        properties = {name: str(value) for name, value in context.kafka.items()}
        self._book = ProgressBook(context.places, read_cluster(properties), metrics)
        self._stopping = threading.Event() if stopping is None else stopping

    def stop(self) -> None:
        """Ask all queries to stop; from a signal handler, or another thread."""
        self._stopping.set()

    def run(
        self, queries: list[Query], started: Callable[[], None] = lambda: None
    ) -> list[Outcome]:
        """Until the last has ended; `started` is called once all of them run."""
        streams = self._context.spark.streams
        streams.addListener(self._book)
        slots: list[_Slot] = []
        try:
            for query in queries:
                self._context.places.stop_request(query.name).unlink(missing_ok=True)
                running = start_query(query, self._context, self._trigger, self._book)
                slots.append(_Slot(query, Restarts(self._trigger.restarts_max), running))
                running.await_source(self._stopping)
            started()
            return self._watch(slots)
        except BaseException:
            # Ctrl-C too: no query is left running behind the error that goes on.
            for slot in slots:
                if slot.running is not None:
                    slot.running.streaming.stop()
                    slot.running.settle()
            raise
        finally:
            streams.removeListener(self._book)
            self._book.close()

    def _watch(self, slots: list[_Slot]) -> list[Outcome]:
        outcomes: list[Outcome] = []
        active = list(slots)
        while active:
            for slot in list(active):
                outcome = self._tend(slot)
                if outcome is not None:
                    active.remove(slot)
                    outcomes.append(outcome)
            if active:
                time.sleep(POLL_S)
        return outcomes

    def _tend(self, slot: _Slot) -> Outcome | None:
        """Look after one query; how it ended, once it has."""
        item = slot.running
        asked = self._stopping.is_set() or self._is_asked(slot.query)
        if item is None:
            if asked:
                return self._end(slot, None, None)
            return self._start_again(slot) if time.monotonic() >= slot.due_s else None
        if item.is_active:
            if asked:
                item.request_stop()
            return None
        failure = item.settle()
        last = item.streaming.lastProgress
        told = None if last is None else last.json
        if failure is None or asked:
            return self._end(slot, told, failure)
        return self._fail(slot, told, failure)

    def _fail(self, slot: _Slot, last: str | None, failure: str) -> Outcome | None:
        """None if the query gets another life."""
        slot.running = None
        batch = None if last is None else int(json.loads(last)["batchId"])
        wait_s = slot.restarts.wait_s(failure, batch)
        if wait_s is None:
            return self._end(slot, last, failure)
        log.warning("query %s: %s; again in %.0f s", slot.query.name, failure, wait_s)
        self._book.restarting(slot.query.name, failure)
        slot.due_s = time.monotonic() + wait_s
        return None

    def _start_again(self, slot: _Slot) -> Outcome | None:
        """As if it had failed while it ran, if it does not start."""
        try:
            slot.running = start_query(slot.query, self._context, self._trigger, self._book)
            slot.running.await_source(self._stopping)
        except PipelineError as error:
            return self._fail(slot, None, f"{type(error).__name__}: {error}")
        return None

    def _is_asked(self, query: Query) -> bool:
        return self._context.places.stop_request(query.name).exists()

    def _end(self, slot: _Slot, last: str | None, failure: str | None) -> Outcome:
        name = slot.query.name
        if failure is not None:
            log.error("query %s failed: %s", name, failure)
        self._context.places.stop_request(name).unlink(missing_ok=True)
        self._book.end(name, last, failure)
        return Outcome(name, failure)
