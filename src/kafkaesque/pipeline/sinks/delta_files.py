"""A Spark task's part of a write to Delta: Parquet files, and the metadata that their commit needs.

File names are random, and partition values are not part of the path. A file that no commit names is
garbage and will be vacuumed. The driver commits (`delta_table.py`).
"""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

FILE_ROWS_MAX = 2_000_000
OPEN_FILES_MAX = 64
"""Per task, over the table's partitions; the file with most rows is closed to open another."""


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """The metadata of a finished file for the commit."""

    path: str
    size_bytes: int
    modified_ms: int
    partition_values: tuple[tuple[str, str | None], ...]
    stats: str


@dataclass(slots=True)
class _Open:
    path: Path
    writer: pq.ParquetWriter
    rows: int = 0
    lowest: dict[str, int] = field(default_factory=dict)
    highest: dict[str, int] = field(default_factory=dict)


class FileWriter:
    """Splits batches by the table's partition columns and writes each partition to its own file."""

    def __init__(self, table: Path, partition_by: Sequence[str]) -> None:
        self._table = table
        self._partition_by = list(partition_by)
        self._open: dict[tuple[str | None, ...], _Open] = {}
        self._done: list[WrittenFile] = []

    def write(self, batches: Iterator[pa.RecordBatch]) -> list[WrittenFile]:
        """Writes all rows and syncs the files to disk before returning."""
        for batch in batches:
            for values, part in self._split(batch):
                self._append(values, part)
        for values in list(self._open):
            self._finish(values)
        return self._done

    def _split(
        self, batch: pa.RecordBatch
    ) -> Iterator[tuple[tuple[str | None, ...], pa.RecordBatch]]:
        if not batch.num_rows:
            return
        if not self._partition_by:
            yield (), batch
            return
        labels = np.zeros(batch.num_rows, np.int64)
        for name in self._partition_by:
            encoded = batch.column(name).dictionary_encode(null_encoding="encode")
            labels = labels * (len(encoded.dictionary) + 1) + encoded.indices.to_numpy()
        data = batch.drop_columns(self._partition_by)
        for label in np.unique(labels):
            rows = np.flatnonzero(labels == label)
            values = tuple(
                partition_text(batch.column(name)[int(rows[0])].as_py())
                for name in self._partition_by
            )
            yield values, data.take(pa.array(rows))

    def _append(self, values: tuple[str | None, ...], part: pa.RecordBatch) -> None:
        file = self._open.get(values)
        if file is None:
            if len(self._open) >= OPEN_FILES_MAX:
                self._finish(max(self._open, key=lambda key: self._open[key].rows))
            file = self._open[values] = self._start(part.schema)
        file.writer.write_batch(part)
        file.rows += part.num_rows
        _widen(file, part)
        if file.rows >= FILE_ROWS_MAX:
            self._finish(values)

    def _start(self, schema: pa.Schema) -> _Open:
        path = self._table / f"part-{uuid.uuid4().hex}.zstd.parquet"
        return _Open(path, pq.ParquetWriter(path, schema, compression="zstd"))

    def _finish(self, values: tuple[str | None, ...]) -> None:
        file = self._open.pop(values)
        file.writer.close()
        # Sync before the commit: after a power cut no commit may name a file that is lost.
        handle = os.open(file.path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
        facts = file.path.stat()
        self._done.append(
            WrittenFile(
                path=file.path.name,
                size_bytes=facts.st_size,
                modified_ms=int(facts.st_mtime * 1000),
                partition_values=tuple(zip(self._partition_by, values, strict=True)),
                stats=json.dumps(
                    {
                        "numRecords": file.rows,
                        "minValues": file.lowest,
                        "maxValues": file.highest,
                        "nullCount": {},
                    }
                ),
            )
        )


def _widen(file: _Open, part: pa.RecordBatch) -> None:
    """Widens the min/max of the integer columns, by which a reader skips files."""
    for name, column in zip(part.schema.names, part.columns, strict=True):
        if pa.types.is_integer(column.type) and column.null_count < len(column):
            bounds = pc.min_max(column).as_py()
            file.lowest[name] = min(bounds["min"], file.lowest.get(name, bounds["min"]))
            file.highest[name] = max(bounds["max"], file.highest.get(name, bounds["max"]))


def partition_text(value: Any) -> str | None:
    """A partition value in the format of Delta's log."""
    if value is None:
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, datetime):
        return value.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S.%f")
    if isinstance(value, date):
        return value.isoformat()
    return str(value)
