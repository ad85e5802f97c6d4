"""A range of the log through a query again: into side tables, then in one commit into the real ones.

Backfill reads the range at once; replay runs it through the stream in small batches, for what only
a stream does (watermarks, late rows). Side tables are looked at before the swap, or thrown away; a
swap replaces exactly the rows that the range is about, and the table's past stays readable. Of tables
of windows that are those which the run has seen whole: `coverage.py`.
"""

from __future__ import annotations

import shutil
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import reduce
from operator import or_
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import CommitProperties, DeltaTable, write_deltalake
from deltalake.exceptions import CommitFailedError

from kafkaesque.pipeline.errors import InvalidOption, PipelineError
from kafkaesque.pipeline.kafka.cluster import Partition
from kafkaesque.pipeline.kafka.fetching import Range, ReadSettings
from kafkaesque.pipeline.operate.catalog import Query
from kafkaesque.pipeline.operate.context import Context
from kafkaesque.pipeline.operate.coverage import (
    Coverage,
    Windows,
    cover,
    live_frontier_ms,
    read_range_ms,
)
from kafkaesque.pipeline.operate.log_bounds import first_time
from kafkaesque.pipeline.operate.running import Trigger, start_query
from kafkaesque.pipeline.operate.watching import Watch, await_end, nobody, watched_job
from kafkaesque.pipeline.places import Places
from kafkaesque.pipeline.sinks.delta_table import BatchIdentity, ensure_table, open_table
from kafkaesque.pipeline.source.offsets import to_json
from kafkaesque.pipeline.source.options import Bound, read_cluster, read_options
from kafkaesque.pipeline.source.planning import Planner
from kafkaesque.pipeline.source.reading import read_batch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_SWAP_ATTEMPTS = 5
_SWAP_PAUSE_S = 0.2


@dataclass(frozen=True, slots=True)
class Span:
    """Which part of the log: by time, by offsets, or all of it."""

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
class Resolved:
    """A span in numbers."""

    start: Mapping[Partition, int]
    end: Mapping[Partition, int]
    span: Span


@dataclass(frozen=True, slots=True)
class SideTables:
    """What a backfill or replay made, before it is swapped in."""

    run: str
    query: Query
    directory: Path
    resolved: Resolved
    watermark_ms: int | None = None
    """How far a replay has told its windows; None for a backfill, which tells them all."""

    def rows(self) -> dict[str, int]:
        counts = {}
        for table in self.query.tables:
            opened = open_table(self.directory / table.name)
            if opened is not None:
                counts[table.name] = int(opened.to_pyarrow_dataset().count_rows())
        return counts


def resolve(query: Query, context: Context, span: Span) -> Resolved:
    """The offsets that the span means now; what is not named reaches to the log's own ends.

    For tables of windows they are those of the time that the span is about, and some around it.
    """
    windows = [table.windows for table in query.tables if table.windows is not None]
    if windows and (span.start_offsets is not None or span.end_offsets is not None):
        span = _in_time(query, context, span)
    start_ms, end_ms = span.start_ms, span.end_ms
    if windows:
        start_ms, end_ms = read_range_ms(windows[0], context.knobs, start_ms, end_ms)
    planner = _planner(query, context)
    try:
        start = planner.resolve(_bound(start_ms, span.start_offsets, "earliest"))
        end = planner.resolve(_bound(end_ms, span.end_offsets, "latest"))
    finally:
        planner.close()
    return Resolved(start, end, span)


def _in_time(query: Query, context: Context, span: Span) -> Span:
    """From the first to the last record of a range of offsets: windows are of time, and those at
    its edges need records of before and after it."""
    from pyspark.sql import functions as F

    planner = _planner(query, context)
    try:
        start = planner.resolve(_bound(None, span.start_offsets, "earliest"))
        end = planner.resolve(_bound(None, span.end_offsets, "latest"))
    finally:
        planner.close()
    at = F.unix_millis("timestamp")
    (row,) = _read(query, context, start, end).agg(F.min(at), F.max(at)).collect()
    if row[0] is None:
        raise InvalidOption(
            "there is no record between these offsets", "name the range by --from and --to"
        )
    return Span(
        None if span.start_offsets is None else row[0],
        None if span.end_offsets is None else row[1] + 1,
    )


def _planner(query: Query, context: Context) -> Planner:
    options = context.source_options(startingOffsets="earliest", **_topics_only(query, context))
    return Planner(read_options(options, streaming=False))


def _topics_only(query: Query, context: Context) -> dict[str, str]:
    return {
        name: value
        for name, value in query.subscription(context.knobs).items()
        if name.startswith("subscribe")
    }


def _bound(time_ms: int | None, offsets: Mapping[Partition, int] | None, word: str) -> Bound:
    if time_ms is not None:
        return Bound(timestamp_ms=time_ms, latest_if_younger=True)
    return Bound(word=word) if offsets is None else Bound(offsets=offsets)


def backfill(query: Query, context: Context, span: Span, watch: Watch = nobody) -> SideTables:
    """The range read at once, through the same transform and the same output."""
    resolved = resolve(query, context, span)
    run = uuid.uuid4().hex[:8]
    directory = context.places.side_table(query.name, run)
    records = _read(query, context, resolved.start, resolved.end)
    side = replace(context, tables=directory)
    rows = query.transform(records, context.knobs)
    with watched_job(context.spark, watch):
        query.write(rows, BatchIdentity(query.name, f"backfill-{run}", 0), side)
    made = SideTables(run, query, directory, resolved)
    _settle(made, context)
    return made


def _read(
    query: Query, context: Context, start: Mapping[Partition, int], end: Mapping[Partition, int]
) -> DataFrame:
    options = context.source_options(
        **query.subscription(context.knobs),
        startingOffsets=to_json(start),
        endingOffsets=to_json(end),
    )
    return read_batch(context.spark, options, engine=context.engine)


def replay(
    query: Query, context: Context, span: Span, rows_max: int | None, watch: Watch = nobody
) -> SideTables:
    """The range in batches of `rows_max` through the stream, with a checkpoint of its own."""
    resolved = resolve(query, context, span)
    run = uuid.uuid4().hex[:8]
    directory = context.places.side_table(query.name, run)
    side = replace(context, tables=directory, places=Places(directory / "run"))
    bounded = replace(
        query, transform=lambda records, knobs: query.transform(until(records, resolved.end), knobs)
    )
    trigger = Trigger(once=True, rows_max=rows_max, start=to_json(resolved.start))
    running = start_query(bounded, side, trigger)
    await_end(running.streaming, resolved.start, resolved.end, watch)
    failure = running.settle()
    if failure is not None:
        raise PipelineError(f"the replay of '{query.name}' failed: {failure}")
    told_ms = live_frontier_ms(side.places.checkpoint(query.name))
    made = SideTables(run, query, directory, resolved, told_ms or 0)
    _settle(made, context)
    return made


def _settle(made: SideTables, context: Context) -> None:
    """What the rest of the log says about the rows of the range."""
    query, resolved = made.query, made.resolved
    if query.settle is None:
        return
    planner = _planner(query, context)
    try:
        latest = {**resolved.end, **planner.resolve(Bound(word="latest"))}
    finally:
        planner.close()
    later = None
    if latest != resolved.end:
        begin = {partition: resolved.end.get(partition, 0) for partition in latest}
        later = _read(query, context, begin, latest)
    query.settle(
        replace(context, tables=made.directory), context, offsets_predicate(resolved), later
    )


def until(records: DataFrame, end: Mapping[Partition, int]) -> DataFrame:
    """Records before `end`: a stream reads to the end of the log, and more may arrive meanwhile."""
    from pyspark.sql import functions as F

    kept = [
        (F.col("topic") == topic) & (F.col("partition") == index) & (F.col("offset") < offset)
        for (topic, index), offset in end.items()
    ]
    return records.where(reduce(or_, kept) if kept else F.lit(False))


def swap(side: SideTables, context: Context) -> dict[str, int]:
    """Put the side tables' rows in the place of those that the range covers; rows by table."""
    swapped = {}
    for table in side.query.tables:
        source = open_table(side.directory / table.name)
        if source is None:
            continue
        if table.windows is None:
            where: str | None = offsets_predicate(side.resolved)
            rows = source.to_pyarrow_table()
        else:
            coverage = _coverage(table.windows, side, source, context)
            if coverage.is_empty:
                swapped[table.name] = 0
                continue
            where = coverage.predicate()
            rows = _whole_windows(source, where)
        path = context.table(table.name)
        ensure_table(path, rows.schema, table.partition_by)
        _replace(path, rows, where, side.run)
        swapped[table.name] = rows.num_rows
    return swapped


def _whole_windows(source: DeltaTable, where: str | None) -> pa.Table:
    """Without the windows at the edges of the range, of which the run has seen only a part."""
    from deltalake import QueryBuilder

    if where is None:
        return source.to_pyarrow_table()
    answer = QueryBuilder().register("side", source).execute(f"SELECT * FROM side WHERE {where}")  # noqa: S608
    found = pa.table(answer.read_all())
    return found.cast(pa.schema(source.schema().to_arrow()))


def _coverage(windows: Windows, side: SideTables, source: DeltaTable, context: Context) -> Coverage:
    newest = pc.max(source.to_pyarrow_table(columns=[windows.newest])[windows.newest]).as_py()
    if newest is None:
        return Coverage(windows, 0, 0)
    knobs, span = context.knobs, side.resolved.span
    own_ms = side.watermark_ms
    if own_ms is None:
        own_ms = int(newest.timestamp() * 1000) - windows.late_s(knobs) * 1000
    live_ms = live_frontier_ms(context.places.checkpoint(side.query.name))
    return cover(
        windows,
        knobs,
        wanted=(span.start_ms, span.end_ms),
        log_begins_ms=_log_begins_ms(side, context),
        frontiers_ms=(own_ms, live_ms),
    )


def _log_begins_ms(side: SideTables, context: Context) -> int | None:
    """The time of the oldest record read, the youngest over the partitions, where older are gone."""
    planner = _planner(side.query, context)
    try:
        first = planner.resolve(Bound(word="earliest"))
    finally:
        planner.close()
    read = ReadSettings(read_cluster(context.kafka), committed_only=True)
    times: list[int] = []
    for (topic, index), start in side.resolved.start.items():
        end = side.resolved.end[topic, index]
        if 0 < first.get((topic, index), 0) == start < end:
            at = first_time(read, Range(topic, index, start, end))
            times += [] if at is None else [int(at.timestamp() * 1000)]
    return max(times, default=None)


def discard(side: SideTables) -> None:
    shutil.rmtree(side.directory, ignore_errors=True)


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
            # The live query committed in between; the swap is computed anew on top of that.
            if attempt == _SWAP_ATTEMPTS - 1:
                raise PipelineError(f"{path} is written too often to swap: {error}") from error
            time.sleep(_SWAP_PAUSE_S)
        else:
            return


def offsets_predicate(resolved: Resolved) -> str:
    """Which rows of a table with offsets the range is about."""
    parts = [
        f"(topic = '{topic}' AND partition = {index} AND offset >= {resolved.start[topic, index]}"
        f" AND offset < {end})"
        for (topic, index), end in sorted(resolved.end.items())
    ]
    return " OR ".join(parts) or "false"
