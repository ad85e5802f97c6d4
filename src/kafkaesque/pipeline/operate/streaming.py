"""Starts streaming queries, supervises them, restarts them after failures, and stops them.

A query stops between two batches. Another process requests it with a file in the query's directory
(`status.request_stop`). The current batch is finished; the next one is rejected before its first row
is written, and Spark plans exactly that batch again at the next start.
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
from kafkaesque.pipeline.operate.context import PipelineContext
from kafkaesque.pipeline.operate.maintenance import is_due, maintain_query_tables
from kafkaesque.pipeline.operate.progress import Metrics, ProgressListener
from kafkaesque.pipeline.operate.queries import Query
from kafkaesque.pipeline.rules.restarting import Restarts
from kafkaesque.pipeline.sinks.delta_table import BatchIdentity, refuse_other_checkpoint
from kafkaesque.pipeline.source.checkpoint import CheckpointLock, checkpoint_id
from kafkaesque.pipeline.source.options import read_cluster
from kafkaesque.pipeline.source.reading import read_stream

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

log = logging.getLogger(__name__)

POLL_S = 0.2
SOURCE_START_S_MAX = 30.0
_STARTING = ("Initializing", "Getting offsets")
"""Status messages of a query that has not called its source for the first time yet."""
_RAISED = re.compile(r"^(?:kafkaesque[\w.]*\.)?([A-Z]\w*(?:: .+)?)$", re.MULTILINE)
_REASON_LENGTH_MAX = 2000
_STOP_MESSAGE = "kafkaesque: stopped between batches"


@dataclass(frozen=True, slots=True)
class Trigger:
    """When Spark starts batches. `once` reads to the current end of the log and stops."""

    interval_s: float = 0.0
    once: bool = False
    rows_max: int | None = None
    start: str = "earliest"
    """Where a query without a checkpoint begins."""
    restarts_max: int = 0
    """How many times in a row a failed query is restarted (`restarting.py`)."""


class BatchGate:
    """Rejects every batch after it is closed."""

    def __init__(self) -> None:
        self._closed = threading.Event()

    def close(self) -> None:
        self._closed.set()

    def check_open(self) -> None:
        if self._closed.is_set():
            # Raising is the only way to reject a batch: returning would commit it.
            raise PipelineError(_STOP_MESSAGE)


class RunningQuery:
    """A started query. It holds the lock on its checkpoint until `close`."""

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
        """Waits until the Python processes of the source have started, at most SOURCE_START_S_MAX.

        Spark gives each process ten seconds. On a busy machine, several queries that start at once
        would need more.
        """
        deadline = time.monotonic() + SOURCE_START_S_MAX
        while self.is_active and time.monotonic() < deadline and not stopping.is_set():
            message = str(self.streaming.status["message"])
            if self.streaming.lastProgress is not None or not message.startswith(_STARTING):
                return
            time.sleep(POLL_S)

    def request_stop(self) -> None:
        """Rejects the next batch; stops the query at once if it is idle."""
        self._gate.close()
        if self.is_active and not self.streaming.status["isTriggerActive"]:
            self.streaming.stop()

    def close(self) -> str | None:
        """Releases the checkpoint of an ended query. Returns the failure, or None if it was stopped."""
        self._lock.release()
        error = self.streaming.exception()
        if error is None or _STOP_MESSAGE in str(error):
            return None
        return _reason(str(error))


def _reason(text: str) -> str:
    """The exception at the end of an embedded Python traceback, else the first line of Spark's error."""
    text = text.partition("=== Streaming Query")[0]
    raised = _RAISED.findall(text)
    return (raised[-1] if raised else text.strip().partition("\n")[0])[:_REASON_LENGTH_MAX]


def start_query(
    query: Query,
    context: PipelineContext,
    trigger: Trigger,
    listener: ProgressListener | None = None,
) -> RunningQuery:
    """Raises CheckpointInUse, CheckpointLost or InvalidOption before anything is read."""
    checkpoint = context.data.checkpoint(query.name)
    lock = CheckpointLock.acquire(checkpoint)
    try:
        own_id = checkpoint_id(checkpoint)
        for table in query.tables:
            refuse_other_checkpoint(context.table(table.name), query.name, own_id)
        options = context.source_options(
            startingOffsets=trigger.start, **query.subscription(context.settings)
        )
        if trigger.rows_max is not None:
            options["maxOffsetsPerTrigger"] = str(trigger.rows_max)
        records = read_stream(context.spark, options, checkpoint=checkpoint, engine=context.engine)
        gate = BatchGate()
        writer = (
            query.transform(records, context.settings)
            .writeStream.queryName(query.name)
            .outputMode(query.mode)
            .option("checkpointLocation", str(checkpoint))
            .foreachBatch(_each_batch(query, context, own_id, gate))
        )
        if trigger.once:
            writer = writer.trigger(availableNow=True)
        else:
            writer = writer.trigger(processingTime=f"{int(trigger.interval_s * 1000)} milliseconds")
        if listener is not None:
            listener.announce(query.name)
        streaming = writer.start()
    except BaseException:
        # The query did not start, so its checkpoint is free for another.
        lock.release()
        raise
    return RunningQuery(query, streaming, gate, lock)


def _each_batch(
    query: Query, context: PipelineContext, own_id: str, gate: BatchGate
) -> Callable[[DataFrame, int], None]:
    def write(rows: DataFrame, batch: int) -> None:
        gate.check_open()
        query.write(rows, BatchIdentity(query.name, own_id, batch), context)
        if is_due(context.settings, batch) and context.tables is None:
            maintain_query_tables(query.tables, context, datetime.now(tz=UTC))

    return write


@dataclass(frozen=True, slots=True)
class QueryResult:
    """The end of a query: its failure, if any."""

    query: str
    failure: str | None


@dataclass(slots=True)
class _Supervised:
    """A query under supervision: running, or waiting for its next restart."""

    query: Query
    restarts: Restarts
    running: RunningQuery | None
    restart_at_s: float = 0.0


class QuerySupervisor:
    """Runs several queries in one Spark session until each has ended."""

    def __init__(
        self,
        context: PipelineContext,
        trigger: Trigger,
        metrics: Metrics,
        stopping: threading.Event | None = None,
    ) -> None:
        """`stopping` may be set by another thread or a signal handler; then all queries stop."""
        self._context = context
        self._trigger = trigger
        properties = {name: str(value) for name, value in context.kafka.items()}
        self._listener = ProgressListener(context.data, read_cluster(properties), metrics)
        self._stopping = threading.Event() if stopping is None else stopping

    def stop(self) -> None:
        """Requests that all queries stop. Safe in signal handlers and other threads."""
        self._stopping.set()

    def run(
        self, queries: list[Query], started: Callable[[], None] = lambda: None
    ) -> list[QueryResult]:
        """Runs the queries until the last has ended. Calls `started` once all of them run."""
        streams = self._context.spark.streams
        streams.addListener(self._listener)
        items: list[_Supervised] = []
        try:
            for query in queries:
                self._context.data.stop_request(query.name).unlink(missing_ok=True)
                running = start_query(query, self._context, self._trigger, self._listener)
                items.append(_Supervised(query, Restarts(self._trigger.restarts_max), running))
                running.await_source(self._stopping)
            started()
            return self._watch(items)
        except BaseException:
            # Also on Ctrl-C: leave no query running.
            for item in items:
                if item.running is not None:
                    item.running.streaming.stop()
                    item.running.close()
            raise
        finally:
            streams.removeListener(self._listener)
            self._listener.close()

    def _watch(self, items: list[_Supervised]) -> list[QueryResult]:
        results: list[QueryResult] = []
        active = list(items)
        while active:
            for item in list(active):
                result = self._poll(item)
                if result is not None:
                    active.remove(item)
                    results.append(result)
            if active:
                time.sleep(POLL_S)
        return results

    def _poll(self, item: _Supervised) -> QueryResult | None:
        """Stops or restarts a query if it is time to. Returns its result once it has ended."""
        running = item.running
        should_stop = self._stopping.is_set() or self._stop_requested(item.query)
        if running is None:
            if should_stop:
                return self._end(item, None, None)
            return self._restart(item) if time.monotonic() >= item.restart_at_s else None
        if running.is_active:
            if should_stop:
                running.request_stop()
            return None
        failure = running.close()
        progress = running.streaming.lastProgress
        last = None if progress is None else progress.json
        if failure is None or should_stop:
            return self._end(item, last, failure)
        return self._fail(item, last, failure)

    def _fail(self, item: _Supervised, last: str | None, failure: str) -> QueryResult | None:
        """Schedules a restart and returns None, or ends the query for good."""
        item.running = None
        batch = None if last is None else int(json.loads(last)["batchId"])
        wait_s = item.restarts.wait_s(failure, batch)
        if wait_s is None:
            return self._end(item, last, failure)
        log.warning("query %s failed: %s; restart in %.0f s", item.query.name, failure, wait_s)
        self._listener.restarting(item.query.name, failure)
        item.restart_at_s = time.monotonic() + wait_s
        return None

    def _restart(self, item: _Supervised) -> QueryResult | None:
        """A query that does not start is treated as one that failed while it ran."""
        try:
            item.running = start_query(item.query, self._context, self._trigger, self._listener)
            item.running.await_source(self._stopping)
        except PipelineError as error:
            return self._fail(item, None, f"{type(error).__name__}: {error}")
        return None

    def _stop_requested(self, query: Query) -> bool:
        return self._context.data.stop_request(query.name).exists()

    def _end(self, item: _Supervised, last: str | None, failure: str | None) -> QueryResult:
        name = item.query.name
        if failure is not None:
            log.error("query %s failed: %s", name, failure)
        self._context.data.stop_request(name).unlink(missing_ok=True)
        self._listener.end(name, last, failure)
        return QueryResult(name, failure)
