"""A range of the log through a query again: into side tables, then in one commit into the real ones.

Backfill reads the range at once; replay runs it through the stream in small batches, for what only
a stream does (watermarks, late rows). Side tables are looked at before the swap, or thrown away; a
swap replaces exactly the rows that the range is about, and the table's past stays readable.
"""

from __future__ import annotations

import shutil
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import reduce
from operator import or_
from pathlib import Path
from typing import TYPE_CHECKING

from deltalake import CommitProperties, DeltaTable, write_deltalake
from deltalake.exceptions import CommitFailedError

from kafkaesque.pipeline.errors import InvalidOption, PipelineError
from kafkaesque.pipeline.kafka.cluster import Partition
from kafkaesque.pipeline.operate.catalog import Query, Table
from kafkaesque.pipeline.operate.context import Context
from kafkaesque.pipeline.operate.running import Trigger, start_query
from kafkaesque.pipeline.places import Places
from kafkaesque.pipeline.sinks.delta_table import BatchIdentity, ensure_table, open_table
from kafkaesque.pipeline.source.offsets import to_json
from kafkaesque.pipeline.source.options import Bound, read_options
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

    def rows(self) -> dict[str, int]:
        counts = {}
        for table in self.query.tables:
            opened = open_table(self.directory / table.name)
            if opened is not None:
                counts[table.name] = int(opened.to_pyarrow_dataset().count_rows())
        return counts


def resolve(query: Query, context: Context, span: Span) -> Resolved:
    """The offsets that the span means now; what is not named reaches to the log's own ends."""
    options = read_options(
        context.source_options(startingOffsets="earliest", **_topics_only(query, context)),
        streaming=False,
    )
    planner = Planner(options)
    try:
        start = planner.resolve(_bound(span.start_ms, span.start_offsets, "earliest"))
        end = planner.resolve(_bound(span.end_ms, span.end_offsets, "latest"))
    finally:
        planner.close()
    return Resolved(start, end, span)


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


def backfill(query: Query, context: Context, span: Span) -> SideTables:
    """The range read at once, through the same transform and the same output."""
    resolved = resolve(query, context, span)
    run = uuid.uuid4().hex[:8]
    directory = context.places.side_table(query.name, run)
    options = context.source_options(
        **query.subscription(context.knobs),
        startingOffsets=to_json(resolved.start),
        endingOffsets=to_json(resolved.end),
    )
    records = read_batch(context.spark, options, engine=context.engine)
    side = replace(context, tables=directory)
    rows = query.transform(records, context.knobs)
    query.write(rows, BatchIdentity(query.name, f"backfill-{run}", 0), side)
    return SideTables(run, query, directory, resolved)


def replay(query: Query, context: Context, span: Span, rows_max: int | None) -> SideTables:
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
    running.streaming.awaitTermination()
    failure = running.settle()
    if failure is not None:
        raise PipelineError(f"the replay of '{query.name}' failed: {failure}")
    return SideTables(run, query, directory, resolved)


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
        rows = source.to_pyarrow_dataset()
        path = context.table(table.name)
        ensure_table(path, rows.schema, table.partition_by)
        _replace(path, source, predicate(table, side.resolved), side.run)
        swapped[table.name] = int(rows.count_rows())
    return swapped


def discard(side: SideTables) -> None:
    shutil.rmtree(side.directory, ignore_errors=True)


def _replace(path: Path, source: DeltaTable, where: str | None, run: str) -> None:
    note = CommitProperties(custom_metadata={"kafkaesque.swap": run})
    for attempt in range(_SWAP_ATTEMPTS):
        try:
            write_deltalake(
                path,
                source.to_pyarrow_dataset().scanner().to_reader(),
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


def predicate(table: Table, resolved: Resolved) -> str | None:
    """Which rows of a table the range is about; None for all of them."""
    if table.has_offsets:
        parts = [
            f"(topic = '{topic}' AND partition = {index} AND offset >= {resolved.start[topic, index]}"
            f" AND offset < {end})"
            for (topic, index), end in sorted(resolved.end.items())
        ]
        return " OR ".join(parts)
    span = resolved.span
    bounds = []
    if span.start_ms is not None:
        bounds.append(f"{table.start_time} >= {_timestamp(span.start_ms)}")
    if span.end_ms is not None:
        bounds.append(f"{table.end_time} <= {_timestamp(span.end_ms)}")
    return " AND ".join(bounds) or None


def _timestamp(time_ms: int) -> str:
    moment = datetime.fromtimestamp(time_ms / 1000, tz=UTC)
    return f"TIMESTAMP '{moment.isoformat(sep=' ', timespec='milliseconds')}'"
