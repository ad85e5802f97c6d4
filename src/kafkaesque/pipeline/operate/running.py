"""Starts a named query, watches it, and stops it between two batches.

A query is asked to stop by a file in its directory (`control.py`). The batch under way is finished;
the next one is refused before its first row is written, and Spark plans the very same batch again
at the next start.
"""

from __future__ import annotations

import logging
import re
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kafkaesque.pipeline.errors import PipelineError
from kafkaesque.pipeline.operate.catalog import Query
from kafkaesque.pipeline.operate.context import Context
from kafkaesque.pipeline.operate.progress import Metrics, ProgressBook
from kafkaesque.pipeline.sinks.delta_table import BatchIdentity, refuse_other_checkpoint
from kafkaesque.pipeline.source.durable_start import CheckpointLock, identity
from kafkaesque.pipeline.source.options import read_cluster
from kafkaesque.pipeline.source.reading import read_stream

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

log = logging.getLogger(__name__)

POLL_S = 0.2
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
        lock.release()
        raise
    return RunningQuery(query, streaming, gate, lock)


def _each_batch(
    query: Query, context: Context, checkpoint_id: str, gate: BatchGate
) -> Callable[[DataFrame, int], None]:
    def write(rows: DataFrame, batch: int) -> None:
        gate.pass_through()
        query.write(rows, BatchIdentity(query.name, checkpoint_id, batch), context)

    return write


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a query ended."""

    query: str
    failure: str | None


class Supervisor:
    """Runs several queries in one session until each has ended or was asked to stop."""

    def __init__(self, context: Context, trigger: Trigger, metrics: Metrics) -> None:
        self._context = context
        self._trigger = trigger
        properties = {name: str(value) for name, value in context.kafka.items()}
        self._book = ProgressBook(context.places, read_cluster(properties), metrics)
        self._stopping = threading.Event()

    def stop(self) -> None:
        """Ask all queries to stop; from a signal handler, or another thread."""
        self._stopping.set()

    def run(self, queries: list[Query]) -> list[Outcome]:
        streams = self._context.spark.streams
        streams.addListener(self._book)
        running: list[RunningQuery] = []
        try:
            for query in queries:
                self._context.places.stop_request(query.name).unlink(missing_ok=True)
                running.append(start_query(query, self._context, self._trigger, self._book))
            return self._watch(running)
        except BaseException:
            for item in running:
                item.streaming.stop()
                item.settle()
            raise
        finally:
            streams.removeListener(self._book)

    def _watch(self, running: list[RunningQuery]) -> list[Outcome]:
        outcomes: list[Outcome] = []
        active = list(running)
        while active:
            for item in list(active):
                if not item.is_active:
                    active.remove(item)
                    outcomes.append(self._end(item))
                elif self._stopping.is_set() or self._is_asked(item):
                    item.request_stop()
            if active:
                time.sleep(POLL_S)
        return outcomes

    def _is_asked(self, item: RunningQuery) -> bool:
        return self._context.places.stop_request(item.query.name).exists()

    def _end(self, item: RunningQuery) -> Outcome:
        name = item.query.name
        failure = item.settle()
        if failure is not None:
            log.error("query %s failed: %s", name, failure)
        self._context.places.stop_request(name).unlink(missing_ok=True)
        last = item.streaming.lastProgress
        self._book.end(name, None if last is None else last.json, failure)
        return Outcome(name, failure)
