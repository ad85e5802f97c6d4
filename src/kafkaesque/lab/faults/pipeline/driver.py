"""The driver program that `kills.py` kills. It writes one topic pattern to every kind of sink.

The sinks are the archive's Delta table, dead letters (two tables from one batch), a topic, and
Spark's own Parquet sink. At its kill point the program sends itself SIGKILL. The points are patched
in from here; the pipeline's code contains none of this.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from kafkaesque.pipeline.paths import PipelineDirectory

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

    from kafkaesque.pipeline.operate.context import PipelineContext
    from kafkaesque.pipeline.operate.queries import Query

ARCHIVE: Final = "archive"
LETTERS: Final = "letters"
RELAY: Final = "relay"
PARQUET: Final = "parquet"
SINKS: Final = (ARCHIVE, LETTERS, RELAY, PARQUET)
LETTERS_TABLE: Final = "posts_dead"
RESTARTS_MAX: Final = 10
_POLL_S: Final = 0.5

SELF_POINTS: Final = {
    "before-write": ARCHIVE,
    "before-commit": ARCHIVE,
    "after-commit": ARCHIVE,
    "between-tables": LETTERS,
    "mid-send": RELAY,
    "after-send": RELAY,
}
"""Points at which the driver kills itself, and in which query: before anything of a batch is written;
files written but in no commit; the sink has the batch but Spark has not committed it; one of two
tables has it; half of the records are sent; all are sent."""


def parquet_directory(data: PipelineDirectory) -> Path:
    return data.table(PARQUET)


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def queries(wanted: Sequence[str], point: str, relay_topic: str) -> list[Query]:
    """The foreachBatch queries among `wanted`. The one that kills itself at `point` comes first, so
    that it does not wait for the sources of the others to start."""
    made: dict[str, Callable[[], Query]] = {
        ARCHIVE: _archive,
        LETTERS: _letters,
        RELAY: lambda: _relay(relay_topic),
    }
    found = []
    for name in sorted(wanted, key=lambda name: SELF_POINTS.get(point) != name):
        if name in made:
            query = made[name]()
            armed = SELF_POINTS.get(point) == name
            found.append(replace(query, write=_armed(query.write, point)) if armed else query)
    return found


def _archive() -> Query:
    from kafkaesque.pipeline.operate.queries import find_query

    return find_query("archive")


def _letters() -> Query:
    """The posts query on records that are not posts: all go to dead letters, no row to `posts`."""
    from kafkaesque.pipeline.operate.queries import find_query

    return replace(find_query("posts"), name=LETTERS, is_pattern=True)


def _relay(topic: str) -> Query:
    from pyspark.sql import functions as F

    from kafkaesque.pipeline.operate.queries import Query
    from kafkaesque.pipeline.sinks.writing import to_topic

    def transform(records: DataFrame, _settings: Any) -> DataFrame:
        position = F.to_json(F.struct("topic", "partition", "offset"))
        return records.select("key", position.cast("binary").alias("value"))

    def write(rows: DataFrame, identity: Any, context: PipelineContext) -> None:
        to_topic(rows, topic, context.kafka, identity)

    return Query(RELAY, "The position of each record.", "", transform, write, is_pattern=True)


def _armed(write: Callable[..., None], point: str) -> Callable[..., None]:
    """`write`, patched to kill the process at `point`."""
    from kafkaesque.pipeline.operate import queries as queries_module
    from kafkaesque.pipeline.sinks import writing

    def armed(rows: Any, identity: Any, context: Any) -> None:
        if point == "before-write":
            _die()
        if point == "before-commit":
            vars(writing)["commit"] = lambda *_: _die()
        if point == "between-tables":
            vars(queries_module)["to_table"] = _dying_before(LETTERS_TABLE)
        if point == "mid-send":
            # In the order of `to_topic`: these are the records that a killed task would have sent.
            rows = rows.sortWithinPartitions("key", "value").mapInArrow(_first_half, rows.schema)
        write(rows, identity, context)
        _die()

    return armed


def _dying_before(table: str) -> Callable[..., bool]:
    from kafkaesque.pipeline.sinks.writing import to_table

    def write(rows: Any, path: Path, *more: Any) -> bool:
        if path.name == table:
            _die()
        return to_table(rows, path, *more)

    return write


def _first_half(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa

    found = list(batches)
    if found:
        table = pa.Table.from_batches(found)
        yield from table.slice(0, (table.num_rows + 1) // 2).to_batches()


class ParquetStream(threading.Thread):
    """A query with Spark's own Parquet sink and its own checkpoint; restarted when it fails, as
    `pipeline run` does."""

    def __init__(self, context: PipelineContext, rows_max: int, start: str, once: bool) -> None:
        super().__init__(daemon=True)
        self._context = context
        self._options = context.source_options(
            subscribePattern=context.settings.archive_pattern,
            startingOffsets=start,
            maxOffsetsPerTrigger=str(rows_max),
        )
        self._once = once
        self.failure: str | None = None
        self.start()

    def run(self) -> None:
        for _ in range(RESTARTS_MAX + 1):
            query = self._begin()
            while query.isActive:
                time.sleep(_POLL_S)
            error = query.exception()
            self.failure = None if error is None else str(error)
            if error is None:
                return
            time.sleep(_POLL_S)

    def _begin(self) -> Any:
        from kafkaesque.pipeline.source.reading import read_stream

        context = self._context
        checkpoint = context.data.checkpoint(PARQUET)
        frame = read_stream(
            context.spark, self._options, checkpoint=checkpoint, engine=context.engine
        )
        writer = (
            frame.select("topic", "partition", "offset")
            .writeStream.format("parquet")
            .option("path", str(parquet_directory(context.data)))
            .option("checkpointLocation", str(checkpoint))
        )
        return (writer.trigger(availableNow=True) if self._once else writer).start()


@click.command()
@click.option("--point", required=True)
@click.option("--bootstrap", required=True)
@click.option("--pattern", required=True)
@click.option("--relay-topic", required=True)
@click.option("--data", type=click.Path(path_type=Path), required=True)
@click.option("--rows-max", type=int, required=True)
@click.option("--start", required=True)
@click.option("--engine", required=True)
@click.option("--master", required=True)
@click.option("--sinks", required=True)
@click.option("--once", is_flag=True)
def main(
    point: str,
    bootstrap: str,
    pattern: str,
    relay_topic: str,
    data: Path,
    rows_max: int,
    start: str,
    engine: Any,
    master: str,
    sinks: str,
    once: bool,
) -> None:
    """Run one driver until it has read everything (--once), is killed, or kills itself."""
    from kafkaesque.pipeline.operate.context import PipelineContext, PipelineSettings
    from kafkaesque.pipeline.operate.progress import Metrics
    from kafkaesque.pipeline.operate.streaming import QuerySupervisor, Trigger
    from kafkaesque.pipeline.session import SessionSettings, start_session

    directory = PipelineDirectory(data)
    settings = SessionSettings(
        directory.scratch,
        master=master,
        shuffle_partitions=2,
        with_jars=engine != "python",
        is_brief=True,
        extra={"spark.executor.memory": "512m"},
    )
    kafka = {"bootstrap.servers": bootstrap}
    context = PipelineContext(
        start_session(settings), directory, kafka, engine, PipelineSettings(archive_pattern=pattern)
    )
    wanted = sinks.split(",")
    parquet = ParquetStream(context, rows_max, start, once) if PARQUET in wanted else None
    trigger = Trigger(once=once, rows_max=rows_max, start=start, restarts_max=RESTARTS_MAX)
    supervisor = QuerySupervisor(context, trigger, Metrics())
    results = supervisor.run(queries(wanted, point, relay_topic))
    if parquet is not None:
        parquet.join()
    context.spark.stop()
    failed = [result.failure for result in results if result.failure]
    if failed or (parquet is not None and parquet.failure):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
