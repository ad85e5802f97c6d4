"""Logs of keyed records and helpers to clean them, for the tests of compaction."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from kafkaesque.broker.storage.checkpoint import Cleaned
from kafkaesque.broker.storage.cleaner import Cleaning, Job
from kafkaesque.broker.storage.config import LogConfig
from kafkaesque.broker.storage.log import Log
from kafkaesque.model.ids import LeaderEpoch, Offset, ProducerEpoch, ProducerId, TimestampMs
from kafkaesque.records.batch import BatchHeader, Codec, iter_batches, read_header
from kafkaesque.records.codec import NO_SEQUENCE, Record, decode_batch, encode_batch

KEYED = LogConfig(segment_bytes=600, index_interval_bytes=100, retention_ms=-1)
DAY_MS = 24 * 3600 * 1000


def put(
    log: Log,
    *pairs: tuple[bytes | None, bytes | None],
    now_ms: int = 1000,
    codec: Codec = Codec.NONE,
    producer: tuple[int, int, int] = (-1, -1, NO_SEQUENCE),
    is_transactional: bool = False,
) -> Offset:
    """Append one batch of (key, value) pairs and return its first offset."""
    base_offset = log.log_end_offset
    records = [
        Record(Offset(base_offset + i), TimestampMs(now_ms + i), key, value)
        for i, (key, value) in enumerate(pairs)
    ]
    data = encode_batch(
        records,
        base_offset=base_offset,
        leader_epoch=LeaderEpoch(1),
        codec=codec,
        producer_id=ProducerId(producer[0]),
        producer_epoch=ProducerEpoch(producer[1]),
        base_sequence=producer[2],
        is_transactional=is_transactional,
    )
    log.append(memoryview(data), read_header(data), now_ms)
    return base_offset


def end_transaction(log: Log, producer: tuple[int, int], *, is_commit: bool) -> Offset:
    base_offset = log.log_end_offset
    key = b"\0\0\0\1" if is_commit else b"\0\0\0\0"
    data = encode_batch(
        [Record(base_offset, TimestampMs(1000), key, b"\0\0\0\0\0\0")],
        base_offset=base_offset,
        leader_epoch=LeaderEpoch(1),
        producer_id=ProducerId(producer[0]),
        producer_epoch=ProducerEpoch(producer[1]),
        is_transactional=True,
        is_control=True,
    )
    log.append(memoryview(data), read_header(data), 1000)
    return base_offset


def job_of(log: Log, now_ms: int = 2000, **more: Any) -> Job:
    """A job for all closed segments."""
    segments = log.segments
    given: dict[str, Any] = {
        "delete_retention_ms": DAY_MS,
        "token": "test",
        "segment_bytes": log.config.segment_bytes,
        "index_interval_bytes": log.config.index_interval_bytes,
        **more,
    }
    return Job(
        str(log.directory),
        segments[:-1],
        log.cleaned.offset,
        segments[-1].base_offset,
        now_ms,
        **given,
    )


def clean(log: Log, now_ms: int = 2000, **more: Any) -> Job:
    """Clean everything, as a broker does."""
    log.roll()
    log.sync()
    job = job_of(log, now_ms, **more)
    cleaning = Cleaning(job, log.files)
    for result in cleaning.run():
        if result.facts is not None:
            assert log.replace_segments(result.bases, result.facts, job.token)
    finished = cleaning.finished()
    log.note_cleaned(Cleaned(finished.cleaned_offset, finished.next_horizon_ms))
    log.sync()
    return job


def batches(log: Log) -> Iterator[tuple[BatchHeader, list[Record]]]:
    """All batches, read as a consumer reads them."""
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        result = log.read(offset, 300, limit_offset=log.log_end_offset)
        assert result.next_offset > offset, f"no way past offset {offset}"
        for position, header in iter_batches(result.records):
            yield header, decode_batch(result.records, position)
        offset = result.next_offset


def records(log: Log) -> list[Record]:
    return [record for _, found in batches(log) for record in found]


def table(found: Sequence[Record]) -> dict[bytes, bytes]:
    """The newest value of each key."""
    rows: dict[bytes, bytes] = {}
    for record in found:
        assert record.key is not None
        if record.value is None:
            rows.pop(record.key, None)
        else:
            rows[record.key] = record.value
    return rows
