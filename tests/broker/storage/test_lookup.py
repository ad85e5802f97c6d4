"""Finding records by time."""

from __future__ import annotations

from pathlib import Path

from tests.broker.storage.batches import append, make_batch, open_log

from kafkaesque.broker.storage.config import LogConfig
from kafkaesque.model.ids import Offset
from kafkaesque.records.batch import Codec, read_header, reseal, stamp_append_time


def test_time_lookup_gives_the_exact_record(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    for i, codec in enumerate([Codec.NONE, Codec.GZIP, Codec.ZSTD, Codec.LZ4, Codec.SNAPPY] * 4):
        data = make_batch(log.log_end_offset, 3, timestamp=1000 + 10 * i, codec=codec, epoch=i)
        log.append(data, read_header(data), 0)
    assert len(log.segments) > 2
    for synced in (False, True):
        for timestamp in range(990, 1193):
            number = max(0, (timestamp - 1000 + 7) // 10)
            within = max(0, timestamp - 1000 - 10 * number)
            expected = (1000 + 10 * number + within, 3 * number + within, number)
            assert log.find_by_timestamp(timestamp) == expected
        assert log.find_by_timestamp(1193) is None
        if not synced:
            log.sync()


def test_time_lookup_among_unordered_times_gives_the_first_record(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    times = [50, 10, 90, 20, 70, 95, 5, 95, 60, 100]
    for timestamp in times:
        append(log, 1, timestamp=timestamp)
    for wanted in range(102):
        expected = next(((t, i, 0) for i, t in enumerate(times) if t >= wanted), None)
        assert log.find_by_timestamp(wanted) == expected
    assert log.max_timestamp() == (100, 9, 0)


def test_time_lookup_does_not_see_deleted_records(tmp_path: Path) -> None:
    log = open_log(tmp_path, LogConfig())
    append(log, 5, timestamp=100)
    append(log, 2, timestamp=50)
    log.delete_before(Offset(3))
    assert log.find_by_timestamp(0) == (103, 3, 0)
    log.delete_before(Offset(5))
    assert log.find_by_timestamp(0) == (50, 5, 0)
    assert log.find_by_timestamp(52) is None
    assert log.max_timestamp() == (51, 6, 0)


def test_max_timestamp_gives_its_first_record(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    assert log.max_timestamp() is None
    for timestamp in (10, 500, 30, 500, 20) * 3:
        append(log, 3, timestamp=timestamp, epoch=log.log_end_offset)
    assert len(log.segments) > 1
    assert log.max_timestamp() == (502, 5, 3)


def test_max_timestamp_is_that_of_the_records_that_are_left(tmp_path: Path) -> None:
    log = open_log(tmp_path, LogConfig())
    for timestamp in (900, 30, 500, 40):
        append(log, 2, timestamp=timestamp)
    log.delete_before(Offset(1))
    assert log.max_timestamp() == (901, 1, 0)
    log.delete_before(Offset(2))
    assert log.max_timestamp() == (501, 5, 0)
    log.delete_before(Offset(6))
    assert log.max_timestamp() == (41, 7, 0)
    log.delete_before(Offset(8))
    assert log.max_timestamp() is None


def test_log_of_records_without_timestamps_has_no_maximum(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    append(log, 1, timestamp=-1)
    assert log.max_timestamp() is None
    assert log.find_by_timestamp(0) is None


def test_append_time_is_what_a_lookup_finds(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    data = make_batch(0, 4)
    stamp_append_time(data, 0, 7777)
    log.append(data, read_header(data), 7777)
    assert log.find_by_timestamp(7777) == log.max_timestamp() == (7777, 0, 0)


def test_time_lookup_in_a_batch_with_nonsense_inside_answers_with_the_batch(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    data = make_batch(0, 4)
    data[61:] = b"\xff" * (len(data) - 61)
    reseal(data, 0, len(data))
    log.append(data, read_header(data), 0)
    assert log.find_by_timestamp(5) == (1003, 0, 0)
    assert log.max_timestamp() == (1003, 3, 0)
