"""Delta tables without Spark's jars: create, add columns, commit exactly once, read, maintain.

Exactly once: every commit of a query carries (application, batch number) as a transaction of Delta's
log. A batch whose number is not above the last one is already committed and is skipped. The
application includes the checkpoint's id, so that a new checkpoint is not mistaken for the old one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Schema, Transaction
from deltalake.exceptions import TableNotFoundError
from deltalake.transaction import AddAction

from kafkaesque.pipeline.errors import CheckpointLost, TableRefused
from kafkaesque.pipeline.sinks.delta_files import WrittenFile

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_QUERY = "kafkaesque.query"
_CHECKPOINT = "kafkaesque.checkpoint"
_HISTORY_LOOKED_AT = 200


@dataclass(frozen=True, slots=True)
class BatchIdentity:
    """Identifies a batch: equal after a restart, different after the checkpoint was lost."""

    query: str
    checkpoint: str
    batch: int

    @property
    def application(self) -> str:
        return f"kafkaesque/{self.query}/{self.checkpoint}"


def open_table(path: Path) -> DeltaTable | None:
    """The table at its newest version; None if it does not exist."""
    try:
        return DeltaTable(path)
    except TableNotFoundError:
        return None


def ensure_table(path: Path, schema: pa.Schema, partition_by: Sequence[str]) -> DeltaTable:
    """Creates the table if it does not exist and adds missing columns.

    Raises TableRefused if a column has another type or the partition columns differ.
    """
    table = open_table(path)
    if table is None:
        path.mkdir(parents=True, exist_ok=True)
        # Two queries may create it at the same time; the second then uses the existing table.
        return DeltaTable.create(path, schema, mode="ignore", partition_by=list(partition_by))
    if table.metadata().partition_columns != list(partition_by):
        raise TableRefused(
            f"{path} is partitioned by {table.metadata().partition_columns}, "
            f"not by {list(partition_by)}"
        )
    known = {item.name: item.type for item in table.schema().fields}
    wanted = Schema.from_arrow(schema).fields
    for item in wanted:
        if item.name in known and known[item.name] != item.type:
            raise TableRefused(
                f"column {item.name} of {path} is {known[item.name]}, but the rows have {item.type}",
                "write to another table, or replay into a side table and swap",
            )
    new = [item for item in wanted if item.name not in known]
    if new:
        table.alter.add_columns(new)
        table = DeltaTable(path)
    return table


def refuse_other_checkpoint(path: Path, query: str, checkpoint: str) -> None:
    """Raises CheckpointLost if this query wrote here under another checkpoint: rows would be duplicated."""
    table = open_table(path)
    if table is None:
        return
    for entry in table.history(_HISTORY_LOOKED_AT):
        if entry.get(_QUERY) == query:
            if entry.get(_CHECKPOINT) != checkpoint:
                raise CheckpointLost(
                    f"{path} has batches of '{query}' under another checkpoint; continuing would "
                    "write its rows twice",
                    "restore that checkpoint, or `kafkaesque pipeline replay` the range and swap",
                )
            return


def is_committed(path: Path, identity: BatchIdentity) -> bool:
    table = open_table(path)
    if table is None:
        return False
    last = table.transaction_version(identity.application)
    return last is not None and last >= identity.batch


def properties(identity: BatchIdentity | None) -> CommitProperties:
    """The metadata and transaction of a batch's commit."""
    if identity is None:
        return CommitProperties()
    return CommitProperties(
        custom_metadata={_QUERY: identity.query, _CHECKPOINT: identity.checkpoint},
        app_transactions=[Transaction(identity.application, identity.batch)],
    )


def commit(path: Path, files: Sequence[WrittenFile], identity: BatchIdentity | None) -> bool:
    """Adds `files` to the table; returns False if the batch is already committed.

    A batch without rows is committed too, so that its number is recorded.
    """
    if identity is not None and is_committed(path, identity):
        return False
    table = DeltaTable(path)
    table.create_write_transaction(
        [_add(file) for file in files],
        mode="append",
        schema=table.schema(),
        partition_by=table.metadata().partition_columns,
        commit_properties=properties(identity),
    )
    return True


def _add(file: WrittenFile) -> AddAction:
    return AddAction(
        path=file.path,
        size=file.size_bytes,
        partition_values=dict(file.partition_values),
        modification_time=file.modified_ms,
        data_change=True,
        stats=file.stats,
    )


def read_table(
    spark: SparkSession, path: Path, where: Mapping[str, Any] | None = None
) -> DataFrame:
    """The table as a DataFrame that Spark reads from the files named by Delta's log.

    `where` limits partition columns to the given values.
    """
    from pyspark.sql import functions as F
    from pyspark.sql.pandas.types import from_arrow_schema

    table = DeltaTable(path)
    schema = from_arrow_schema(pa.schema(table.schema()))
    empty = spark.createDataFrame([], schema)
    by_partition: dict[tuple[tuple[str, Any], ...], list[str]] = {}
    adds = pa.table(table.get_add_actions(flatten=True)).to_pylist()
    for add in adds:
        values = tuple(
            (name, add[f"partition.{name}"]) for name in table.metadata().partition_columns
        )
        if all(value in (where or {}).get(name, (value,)) for name, value in values):
            by_partition.setdefault(values, []).append(str(path / add["path"]))
    frame = empty
    for values, files in by_partition.items():
        part = spark.read.schema(schema).parquet(*files)
        for name, value in values:
            part = part.withColumn(name, F.lit(value).cast(schema[name].dataType))
        frame = frame.unionByName(part.select(*schema.names))
    return frame


@dataclass(frozen=True, slots=True)
class MaintenanceResult:
    """The result of a table's maintenance."""

    files_before: int
    files_after: int
    files_removed_from_disk: int
    rows_expired: int


def maintain(
    path: Path, *, expired: str | None = None, keep_hours: int = 168, target_bytes: int = 128 << 20
) -> MaintenanceResult:
    """Deletes the rows that match the predicate `expired`, merges small files, vacuums.

    Versions up to `keep_hours` old stay readable.
    """
    table = DeltaTable(path)
    rows_expired = 0
    if expired is not None:
        rows_expired = int(table.delete(expired).get("num_deleted_rows") or 0)
    before = len(table.file_uris())
    table.optimize.compact(target_size=target_bytes)
    after = len(DeltaTable(path).file_uris())
    removed = DeltaTable(path).vacuum(
        retention_hours=keep_hours, dry_run=False, enforce_retention_duration=False, full=True
    )
    return MaintenanceResult(before, after, len(removed), rows_expired)
