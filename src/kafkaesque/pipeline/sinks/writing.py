"""Writes a batch to a table or a topic; safe to repeat with the same batch number.

Tasks do the work with `mapInArrow`, then the driver commits. Spark's Python data sinks would start
two processes for every batch; this starts none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from kafkaesque.pipeline.errors import InvalidOption
from kafkaesque.pipeline.sinks.delta_files import FileWriter, WrittenFile
from kafkaesque.pipeline.sinks.delta_table import (
    BatchIdentity,
    commit,
    ensure_table,
    is_committed,
)
from kafkaesque.pipeline.sinks.topic_sender import COLUMNS, TopicSender, TopicTarget

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_FILES = "path string, size long, modified long, values array<string>, stats string"
_SENT = "records long"


def to_table(
    rows: DataFrame, path: Path, identity: BatchIdentity | None, partition_by: Sequence[str] = ()
) -> bool:
    """Appends rows in one commit. Returns False, without computing them, if the batch is committed."""
    from pyspark.sql.pandas.types import to_arrow_schema

    if identity is not None and is_committed(path, identity):
        return False
    ensure_table(path, to_arrow_schema(rows.schema, timezone="UTC"), partition_by)
    written = rows.mapInArrow(_file_task(path, tuple(partition_by)), _FILES).collect()
    files = [
        WrittenFile(
            row["path"],
            row["size"],
            row["modified"],
            tuple(zip(partition_by, row["values"], strict=True)),
            row["stats"],
        )
        for row in written
    ]
    return commit(path, files, identity)


def _file_task(
    path: Path, partition_by: tuple[str, ...]
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The function of a task: writes its rows to files and returns one row per file."""

    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        files = FileWriter(path, partition_by).write(batches)
        yield pa.RecordBatch.from_pydict(
            {
                "path": pa.array([file.path for file in files], pa.string()),
                "size": pa.array([file.size_bytes for file in files], pa.int64()),
                "modified": pa.array([file.modified_ms for file in files], pa.int64()),
                "values": pa.array(
                    [[value for _, value in file.partition_values] for file in files],
                    pa.list_(pa.string()),
                ),
                "stats": pa.array([file.stats for file in files], pa.string()),
            }
        )

    return write


def to_topic(
    rows: DataFrame, topic: str | None, kafka: Mapping[str, str], identity: BatchIdentity
) -> int:
    """Sends rows of key and value; returns how many were acknowledged.

    Rows are sorted within tasks, so that a repeated batch gives each row the same number.
    """
    unknown = sorted(set(rows.columns) - COLUMNS)
    if unknown or "value" not in rows.columns:
        raise InvalidOption(
            f"a topic takes the columns {', '.join(sorted(COLUMNS))}, not {rows.columns}"
        )
    if topic is None and "topic" not in rows.columns:
        raise InvalidOption("name the topic, or add a column `topic`")
    order = [name for name in ("key", "value") if name in rows.columns]
    target = TopicTarget(dict(kafka), topic, identity.query, identity.checkpoint, identity.batch)
    sent = rows.sortWithinPartitions(*order).mapInArrow(_send_task(target), _SENT).collect()
    return sum(int(row["records"]) for row in sent)


def _send_task(
    target: TopicTarget,
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def send(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context = TaskContext.get()
        task = context.partitionId() if context is not None else 0
        count = TopicSender(target, task).send_all(batches)
        yield pa.RecordBatch.from_pydict({"records": pa.array([count], pa.int64())})

    return send
