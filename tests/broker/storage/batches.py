"""Batches for the storage tests."""

from __future__ import annotations

from pathlib import Path

from kafkaesque.broker.storage.chain import ReadResult
from kafkaesque.broker.storage.config import LogConfig
from kafkaesque.broker.storage.log import Log
from kafkaesque.broker.storage.open_files import OpenFiles
from kafkaesque.model.errors import StorageFailed
from kafkaesque.model.ids import LeaderEpoch, Offset, TimestampMs
from kafkaesque.records.batch import BatchHeader, Codec, iter_batches, read_header
from kafkaesque.records.codec import Record, decode_batch, encode_batch

SMALL = LogConfig(segment_bytes=1000, index_interval_bytes=150, retention_ms=-1)


def make_batch(
    offset: int,
    count: int = 1,
    *,
    timestamp: int = 1000,
    epoch: int = 0,
    size_bytes: int = 20,
    codec: Codec = Codec.NONE,
) -> bytearray:
    records = [
        Record(Offset(offset + i), TimestampMs(timestamp + i), b"k", bytes([i % 256]) * size_bytes)
        for i in range(count)
    ]
    return encode_batch(
        records, base_offset=Offset(offset), leader_epoch=LeaderEpoch(epoch), codec=codec
    )


def append(log: Log, count: int = 1, *, now_ms: int = 1000, **batch: int) -> bytes:
    """Append a batch of `count` records at the end and return its bytes."""
    data = make_batch(log.log_end_offset, count, **batch)  # type: ignore[arg-type]
    log.append(memoryview(data), read_header(data), now_ms)
    return bytes(data)


def read_all(log: Log, *, max_bytes: int = 400) -> list[BatchHeader]:
    """Headers of all batches, read as a consumer reads them."""
    headers = []
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        result = log.read(offset, max_bytes, limit_offset=log.log_end_offset)
        assert result.next_offset > offset
        headers += [header for _, header in iter_batches(result.records)]
        offset = result.next_offset
    return headers


def offsets(result: ReadResult) -> list[int]:
    """Offsets of all records of a result."""
    return [
        record.offset
        for position, _ in iter_batches(result.records)
        for record in decode_batch(result.records, position)
    ]


def open_log(directory: Path, config: LogConfig = SMALL, *, clean: bool = False) -> Log:
    return Log.open(directory, config, OpenFiles(8), clean=clean)


def fill(log: Log) -> str:
    """Append until the disk refuses, and return the error."""
    while True:
        try:
            append(log, 1, size_bytes=7000)
        except StorageFailed as error:
            return str(error)
