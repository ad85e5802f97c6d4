"""Backfill and replay: run a range of the log through a query again, then swap the result in.

A backfill reads the range in one batch. A replay runs it through the stream in small batches, for
what only a stream does (watermarks, late rows). Both write to side tables, which can be inspected
and then swapped in or discarded. A swap replaces exactly the rows of the range in one Delta commit;
earlier versions of the table stay readable.

A table of windows is special: only complete windows may be swapped. A window is complete when no
more events can enter it, that is, when its end and the time its job still waits after it are before
the watermark. Windows at the edges of the range are incomplete, and the live query will still emit
those it has not emitted yet. Swapping either would lose or duplicate rows.
"""

from __future__ import annotations

import json
import shutil
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import reduce
from operator import or_
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import CommitProperties, DeltaTable, QueryBuilder, write_deltalake
from deltalake.exceptions import CommitFailedError
from pyspark.sql import functions as F

from kafkaesque.pipeline.errors import InvalidOption, PipelineError
from kafkaesque.pipeline.kafka.fetching import first_timestamp
from kafkaesque.pipeline.kafka.read_settings import ReadSettings
from kafkaesque.pipeline.operate.context import PipelineContext, PipelineSettings
from kafkaesque.pipeline.operate.progress import summarize
from kafkaesque.pipeline.operate.queries import Query, WindowColumns
from kafkaesque.pipeline.operate.streaming import Trigger, start_query
from kafkaesque.pipeline.paths import PipelineDirectory
from kafkaesque.pipeline.rules.offsets import OffsetRange, Partition, from_spark, to_json
from kafkaesque.pipeline.sinks.delta_table import BatchIdentity, ensure_table, open_table
from kafkaesque.pipeline.source.checkpoint import committed_watermark_ms
from kafkaesque.pipeline.source.options import Bound, read_cluster, read_options
from kafkaesque.pipeline.source.planning import Planner
from kafkaesque.pipeline.source.reading import read_batch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

READ_BEFORE_MS = 5 * 60_000
"""How long before the range its records may have been logged: the clock skew that is accepted."""
READ_AFTER_MS = 60_000
"""Records after range and lateness that move the watermark of a replay past the range's end."""
PROGRESS_POLL_S = 1.0
_SWAP_ATTEMPTS = 5
_SWAP_PAUSE_S = 0.2

ProgressCallback = Callable[[str, int, int], None]
"""(unit, done, total)"""


def no_progress(_unit: str, _done: int, _total: int) -> None:
    """Ignores progress."""


@dataclass(frozen=True, slots=True)
class LogRange:
    """A part of the log: by time, by offsets, or all of it."""

    start_ms: int | None = None
    end_ms: int | None = None
    start_offsets: Mapping[Partition, int] | None = None
    end_offsets: Mapping[Partition, int] | None = None

    def __post_init__(self) -> None:
        if self.start_ms is not None and self.end_ms is not None and self.start_ms >= self.end_ms:
            raise InvalidOption("the range ends before it begins")
        by_time = self.start_ms is not None or self.end_ms is not None
        if by_time and (self.start_offsets is not None or self.end_offsets is not None):
            raise InvalidOption("name a range by time or by offsets, not by both")


@dataclass(frozen=True, slots=True)
class ResolvedRange:
    """The offsets that are read for a range, and the range itself."""

    start: Mapping[Partition, int]
    end: Mapping[Partition, int]
    wanted: LogRange


@dataclass(frozen=True, slots=True)
class SideTables:
    """The result of a backfill or replay before it is swapped in."""

    run: str
    query: Query
    directory: Path
    resolved: ResolvedRange
    watermark_ms: int | None = None
    """The watermark up to which a replay has emitted windows; None for a backfill, which emits all."""

    def rows(self) -> dict[str, int]:
        counts = {}
        for table in self.query.tables:
            opened = open_table(self.directory / table.name)
            if opened is not None:
                counts[table.name] = int(opened.to_pyarrow_dataset().count_rows())
        return counts


def backfill(
    query: Query,
    context: PipelineContext,
    wanted: LogRange,
    on_progress: ProgressCallback = no_progress,
) -> SideTables:
    """Reads the range in one batch, with the query's own transform and write."""
    resolved = resolve(query, context, wanted)
    run = uuid.uuid4().hex[:8]
    directory = context.data.side_table(query.name, run)
    records = _read(query, context, resolved.start, resolved.end)
    side = replace(context, tables=directory)
    rows = query.transform(records, context.settings)
    with _task_progress(context.spark, on_progress):
        query.write(rows, BatchIdentity(query.name, f"backfill-{run}", 0), side)
    result = SideTables(run, query, directory, resolved)
    _reconcile(result, context)
    return result


def replay(
    query: Query,
    context: PipelineContext,
    wanted: LogRange,
    rows_max: int | None,
    on_progress: ProgressCallback = no_progress,
) -> SideTables:
    """Streams the range in batches of `rows_max`, with a checkpoint of its own."""
    resolved = resolve(query, context, wanted)
    run = uuid.uuid4().hex[:8]
    directory = context.data.side_table(query.name, run)
    side = replace(context, tables=directory, data=PipelineDirectory(directory / "run"))
    bounded = replace(
        query,
        transform=lambda records, settings: query.transform(until(records, resolved.end), settings),
    )
    trigger = Trigger(once=True, rows_max=rows_max, start=to_json(resolved.start))
    running = start_query(bounded, side, trigger)
    _await_end(running.streaming, resolved, on_progress)
    failure = running.close()
    if failure is not None:
        raise PipelineError(f"the replay of '{query.name}' failed: {failure}")
    watermark_ms = committed_watermark_ms(side.data.checkpoint(query.name))
    result = SideTables(run, query, directory, resolved, watermark_ms or 0)
    _reconcile(result, context)
    return result


def discard(side: SideTables) -> None:
    shutil.rmtree(side.directory, ignore_errors=True)


# Resolving and reading the range


def resolve(query: Query, context: PipelineContext, wanted: LogRange) -> ResolvedRange:
    """The offsets of the range now. A side that is not given extends to the end of the log.

    For tables of windows, records around the range are included to complete its windows.
    """
    windows = [table.windows for table in query.tables if table.windows is not None]
    if windows and (wanted.start_offsets is not None or wanted.end_offsets is not None):
        wanted = _time_range(query, context, wanted)
    start_ms, end_ms = wanted.start_ms, wanted.end_ms
    if windows:
        start_ms, end_ms = records_range_ms(windows[0], context.settings, start_ms, end_ms)
    start, end = _resolve_bounds(
        query,
        context,
        _bound(start_ms, wanted.start_offsets, "earliest"),
        _bound(end_ms, wanted.end_offsets, "latest"),
    )
    return ResolvedRange(start, end, wanted)


def _time_range(query: Query, context: PipelineContext, wanted: LogRange) -> LogRange:
    """The time from the first to the last record of a range of offsets.

    Windows are defined by time, and those at the edges need records before and after the offsets.
    """
    start, end = _resolve_bounds(
        query,
        context,
        _bound(None, wanted.start_offsets, "earliest"),
        _bound(None, wanted.end_offsets, "latest"),
    )
    at = F.unix_millis("timestamp")
    (row,) = _read(query, context, start, end).agg(F.min(at), F.max(at)).collect()
    if row[0] is None:
        raise InvalidOption(
            "there is no record between these offsets", "name the range by --from and --to"
        )
    return LogRange(
        None if wanted.start_offsets is None else row[0],
        None if wanted.end_offsets is None else row[1] + 1,
    )


def _resolve_bounds(
    query: Query, context: PipelineContext, *bounds: Bound
) -> list[dict[Partition, int]]:
    subscription = {
        name: value
        for name, value in query.subscription(context.settings).items()
        if name.startswith("subscribe")
    }
    options = context.source_options(startingOffsets="earliest", **subscription)
    planner = Planner(read_options(options, streaming=False))
    try:
        return [planner.resolve(bound) for bound in bounds]
    finally:
        planner.close()


def _bound(time_ms: int | None, offsets: Mapping[Partition, int] | None, word: str) -> Bound:
    if time_ms is not None:
        return Bound(timestamp_ms=time_ms, latest_if_younger=True)
    return Bound(word=word) if offsets is None else Bound(offsets=offsets)


def _read(
    query: Query,
    context: PipelineContext,
    start: Mapping[Partition, int],
    end: Mapping[Partition, int],
) -> DataFrame:
    options = context.source_options(
        **query.subscription(context.settings),
        startingOffsets=to_json(start),
        endingOffsets=to_json(end),
    )
    return read_batch(context.spark, options, engine=context.engine)


def until(records: DataFrame, end: Mapping[Partition, int]) -> DataFrame:
    """The records before `end`. A stream reads to the end of the log, which grows meanwhile."""
    kept = [
        (F.col("topic") == topic) & (F.col("partition") == index) & (F.col("offset") < offset)
        for (topic, index), offset in end.items()
    ]
    return records.where(reduce(or_, kept) if kept else F.lit(False))


def _reconcile(side: SideTables, context: PipelineContext) -> None:
    """Applies the effect of the rest of the log on the rows of the range (`Query.reconcile`)."""
    query, resolved = side.query, side.resolved
    if query.reconcile is None:
        return
    (log_end,) = _resolve_bounds(query, context, Bound(word="latest"))
    latest = {**resolved.end, **log_end}
    later = None
    if latest != resolved.end:
        begin = {partition: resolved.end.get(partition, 0) for partition in latest}
        later = _read(query, context, begin, latest)
    side_context = replace(context, tables=side.directory)
    query.reconcile(side_context, context, offsets_predicate(resolved), later)


# Progress


def _await_end(
    streaming: StreamingQuery, resolved: ResolvedRange, on_progress: ProgressCallback
) -> None:
    """Reports the records of a replay until it has ended, with or without a failure."""
    start, end = resolved.start, resolved.end
    total = sum(end.values()) - sum(start.values())
    pause = threading.Event()
    while streaming.isActive:
        last = streaming.lastProgress
        if last is not None:
            on_progress("records", records_done(json.loads(last.json), start, end), total)
        pause.wait(PROGRESS_POLL_S)


def records_done(
    progress: Mapping[str, Any], start: Mapping[Partition, int], end: Mapping[Partition, int]
) -> int:
    """The offsets of the range up to the end of a batch; the stream may already be past the range."""
    reached = from_spark(summarize("", progress).end_offsets)
    return sum(
        max(0, min(offset, end.get(partition, 0)) - start.get(partition, 0))
        for partition, offset in reached.items()
    )


@contextmanager
def _task_progress(spark: SparkSession, on_progress: ProgressCallback) -> Iterator[None]:
    """Reports the tasks of the Spark jobs that run inside the block."""
    tracker = spark.sparkContext.statusTracker()
    over = threading.Event()

    def poll() -> None:
        while not over.wait(PROGRESS_POLL_S):
            stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
            known = [stage for stage in stages if stage is not None]
            if known:
                done = sum(stage.numCompletedTasks for stage in known)
                on_progress("tasks", done, sum(stage.numTasks for stage in known))

    thread = threading.Thread(target=poll, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


# Swapping the result in


def swap(side: SideTables, context: PipelineContext) -> dict[str, int]:
    """Replaces the live rows that the range covers by those of the side tables; rows by table."""
    swapped = {}
    for table in side.query.tables:
        source = open_table(side.directory / table.name)
        if source is None:
            continue
        if table.windows is None:
            where: str | None = offsets_predicate(side.resolved)
            rows = source.to_pyarrow_table()
        else:
            complete = _swappable_windows(table.windows, side, source, context)
            if complete.is_empty:
                swapped[table.name] = 0
                continue
            where = complete.predicate()
            rows = _select(source, where)
        path = context.table(table.name)
        ensure_table(path, rows.schema, table.partition_by)
        _replace(path, rows, where, side.run)
        swapped[table.name] = rows.num_rows
    return swapped


def offsets_predicate(resolved: ResolvedRange) -> str:
    """Selects the rows of the range in a table with offsets."""
    parts = [
        f"(topic = '{topic}' AND partition = {index} AND offset >= {resolved.start[topic, index]}"
        f" AND offset < {end})"
        for (topic, index), end in sorted(resolved.end.items())
    ]
    return " OR ".join(parts) or "false"


def _select(source: DeltaTable, where: str | None) -> pa.Table:
    if where is None:
        return source.to_pyarrow_table()
    answer = QueryBuilder().register("side", source).execute(f"SELECT * FROM side WHERE {where}")  # noqa: S608
    found = pa.table(answer.read_all())
    return found.cast(pa.schema(source.schema().to_arrow()))


def _replace(path: Path, rows: pa.Table, where: str | None, run: str) -> None:
    note = CommitProperties(custom_metadata={"kafkaesque.swap": run})
    for attempt in range(_SWAP_ATTEMPTS):
        try:
            write_deltalake(
                path,
                rows,
                mode="overwrite",
                predicate=where,
                commit_properties=note,
            )
        except CommitFailedError as error:
            # The live query committed in between; try again on top of its commit.
            if attempt == _SWAP_ATTEMPTS - 1:
                raise PipelineError(
                    f"{path} is written too often to swap: {error}",
                    "stop its query during the swap",
                ) from error
            time.sleep(_SWAP_PAUSE_S)
        else:
            return


# Complete windows


@dataclass(frozen=True, slots=True)
class CompleteWindows:
    """Rows with `start >= start_ms` and `end <= end_ms` are complete. None: no bound on that side."""

    windows: WindowColumns
    start_ms: int | None
    end_ms: int | None

    @property
    def is_empty(self) -> bool:
        bounds = self.start_ms, self.end_ms
        return bounds[0] is not None and bounds[1] is not None and bounds[0] >= bounds[1]

    def predicate(self) -> str | None:
        """The rows as a predicate of Delta; None if every row is complete."""
        parts = []
        if self.start_ms is not None:
            parts.append(f"{self.windows.start} >= {_timestamp(self.start_ms)}")
        if self.end_ms is not None:
            parts.append(f"{self.windows.end} <= {_timestamp(self.end_ms)}")
        return " AND ".join(parts) or None


def _timestamp(time_ms: int) -> str:
    """A literal of the column's exact type: delta-rs compares a plain TIMESTAMP with no column."""
    moment = datetime.fromtimestamp(time_ms / 1000, tz=UTC).isoformat(timespec="milliseconds")
    return f"arrow_cast('{moment}', 'Timestamp(Microsecond, Some(\"UTC\"))')"


def complete_windows(
    windows: WindowColumns,
    settings: PipelineSettings,
    *,
    wanted: tuple[int | None, int | None],
    log_start_ms: int | None,
    watermarks_ms: tuple[int | None, ...],
) -> CompleteWindows:
    """The windows of `wanted` that may be swapped.

    `log_start_ms` is the time of the oldest record if older ones are gone. `watermarks_ms` are those
    of the run and of the live query: rows must end before both.
    """
    start_ms, end_ms = wanted
    if log_start_ms is not None:
        floor_ms = log_start_ms + windows.lead_s(settings) * 1000
        start_ms = floor_ms if start_ms is None else max(start_ms, floor_ms)
    bounds = [bound for bound in (end_ms, *watermarks_ms) if bound is not None]
    tail_ms = windows.tail_s(settings) * 1000
    return CompleteWindows(windows, start_ms, min(bounds) - tail_ms if bounds else None)


def records_range_ms(
    windows: WindowColumns, settings: PipelineSettings, start_ms: int | None, end_ms: int | None
) -> tuple[int | None, int | None]:
    """The times of the records that must be read to complete the windows of a range."""
    before_ms = READ_BEFORE_MS + windows.lead_s(settings) * 1000
    after_ms = READ_AFTER_MS + (windows.late_s(settings) + windows.tail_s(settings)) * 1000
    return (
        None if start_ms is None else max(0, start_ms - before_ms),
        None if end_ms is None else end_ms + after_ms,
    )


def _swappable_windows(
    windows: WindowColumns, side: SideTables, source: DeltaTable, context: PipelineContext
) -> CompleteWindows:
    newest = pc.max(source.to_pyarrow_table(columns=[windows.newest])[windows.newest]).as_py()
    if newest is None:
        return CompleteWindows(windows, 0, 0)
    settings, wanted = context.settings, side.resolved.wanted
    own_ms = side.watermark_ms
    if own_ms is None:
        own_ms = int(newest.timestamp() * 1000) - windows.late_s(settings) * 1000
    live_ms = committed_watermark_ms(context.data.checkpoint(side.query.name))
    return complete_windows(
        windows,
        settings,
        wanted=(wanted.start_ms, wanted.end_ms),
        log_start_ms=_log_start_ms(side, context),
        watermarks_ms=(own_ms, live_ms),
    )


def _log_start_ms(side: SideTables, context: PipelineContext) -> int | None:
    """The time of the oldest record read in partitions that have lost older ones, the latest over
    these partitions; None if no partition has lost any."""
    (first,) = _resolve_bounds(side.query, context, Bound(word="earliest"))
    read = ReadSettings(read_cluster(context.kafka), committed_only=True)
    times: list[int] = []
    for (topic, index), start in side.resolved.start.items():
        end = side.resolved.end[topic, index]
        if 0 < first.get((topic, index), 0) == start < end:
            at = first_timestamp(OffsetRange(topic, index, start, end), read)
            times += [] if at is None else [int(at.timestamp() * 1000)]
    return max(times, default=None)
