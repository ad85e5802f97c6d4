"""The Arrow columns of a topic, identical to those of Spark's own Kafka connector.

Reference: KafkaRecordToRowConverter.schemaWithHeaders. Spark requires that our schema equals its own,
including nullability and time zone.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

import pyarrow as pa

from kafkaesque.pipeline.kafka.decoding import Columns, StringColumn

CREATE_TIME: Final = 0
LOG_APPEND_TIME: Final = 1
_CONSTANT_ROWS_MIN: Final = 64

HEADERS_TYPE: Final = pa.list_(
    pa.field(
        "element",
        pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]),
    )
)

_FIELDS: Final = (
    pa.field("key", pa.binary()),
    pa.field("value", pa.binary()),
    pa.field("topic", pa.string()),
    pa.field("partition", pa.int32()),
    pa.field("offset", pa.int64()),
    pa.field("timestamp", pa.timestamp("us", tz="UTC")),
    pa.field("timestampType", pa.int32()),
)


def arrow_schema(*, with_headers: bool) -> pa.Schema:
    fields = list(_FIELDS)
    if with_headers:
        fields.append(pa.field("headers", HEADERS_TYPE))
    return pa.schema(fields)


def record_batch(
    columns: Columns, topic: str, partition: int, timestamp_type: int
) -> pa.RecordBatch:
    """The rows of one partition. Buffers are used without copying."""
    rows = columns.rows
    arrays = [
        _strings(columns.keys, pa.binary(), rows),
        _strings(columns.values, pa.binary(), rows),
        _constant(topic, pa.string(), rows),
        _constant(partition, pa.int32(), rows),
        pa.Array.from_buffers(pa.int64(), rows, [None, pa.py_buffer(columns.offsets)]),
        pa.Array.from_buffers(
            pa.timestamp("us", tz="UTC"), rows, [None, pa.py_buffer(columns.timestamps_us)]
        ),
        _constant(timestamp_type, pa.int32(), rows),
    ]
    if columns.headers is not None:
        arrays.append(_headers(columns))
    return pa.RecordBatch.from_arrays(
        arrays, schema=arrow_schema(with_headers=columns.headers is not None)
    )


def _constant(value: str | int, kind: pa.DataType, rows: int) -> pa.Array:
    """A column of equal values: a slice of a cached column that later batches can reuse."""
    size = 1 << max(rows - 1, _CONSTANT_ROWS_MIN - 1).bit_length()
    return _repeated(value, kind, size).slice(0, rows)


@lru_cache(maxsize=16)
def _repeated(value: str | int, kind: pa.DataType, rows: int) -> pa.Array:
    return pa.repeat(pa.scalar(value, kind), rows)


def _strings(column: StringColumn, kind: pa.DataType, rows: int) -> pa.Array:
    offsets, data, validity = column
    buffers = [
        None if validity is None else pa.py_buffer(validity),
        pa.py_buffer(offsets),
        pa.py_buffer(data),
    ]
    return pa.Array.from_buffers(kind, rows, buffers)


def _text(names: pa.Array) -> pa.Array:
    """Header keys as text. Invalid UTF-8 is replaced, as the Java client does."""
    try:
        return names.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([name.decode(errors="replace") for name in names.to_pylist()], pa.string())


def _headers(columns: Columns) -> pa.Array:
    if columns.headers is None:
        return pa.nulls(columns.rows, HEADERS_TYPE)
    offsets, validity, count, keys, values = columns.headers
    structs = pa.StructArray.from_arrays(
        [_text(_strings(keys, pa.binary(), count)), _strings(values, pa.binary(), count)],
        fields=[pa.field("key", pa.string()), pa.field("value", pa.binary())],
    )
    return pa.Array.from_buffers(
        HEADERS_TYPE,
        columns.rows,
        [None if validity is None else pa.py_buffer(validity), pa.py_buffer(offsets)],
        children=[structs],
    )
