"""Finding batches in intact and damaged segments."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import pytest
from tests.broker.storage.batches import append, make_batch, offsets, open_log

from kafkaesque.broker.storage.config import LogConfig
from kafkaesque.broker.storage.log import Log
from kafkaesque.broker.storage.open_files import OpenFiles, SystemCalls
from kafkaesque.model.errors import (
    CorruptMessage,
    StorageFailed,
)
from kafkaesque.model.ids import Offset
from kafkaesque.records.batch import read_header


def test_size_limit_ends_between_batches_but_allows_the_first(tmp_path: Path) -> None:
    log = open_log(tmp_path, LogConfig())
    size_bytes = len(append(log, 1))
    append(log, 1)
    big = append(log, 1, size_bytes=50_000)
    end = log.log_end_offset
    assert offsets(log.read(Offset(0), size_bytes, limit_offset=end)) == [0]
    assert offsets(log.read(Offset(0), 2 * size_bytes - 1, limit_offset=end)) == [0]
    assert offsets(log.read(Offset(0), 2 * size_bytes, limit_offset=end)) == [0, 1]
    assert offsets(log.read(Offset(0), 2 * size_bytes + 9000, limit_offset=end)) == [0, 1]
    assert log.read(Offset(2), 1, limit_offset=end).records == big
    nothing = log.read(Offset(2), 1, limit_offset=end, at_least_one=False)
    assert (nothing.records, nothing.next_offset) == (b"", 2)


class ReadSizes(SystemCalls):
    """Records the size of each read."""

    def __init__(self) -> None:
        self.sizes_bytes: list[int] = []

    def pread(self, fd: int, size_bytes: int, position: int) -> bytes:
        self.sizes_bytes.append(size_bytes)
        return super().pread(fd, size_bytes, position)


def test_sequential_read_reads_no_more_than_it_may_return(tmp_path: Path) -> None:
    calls = ReadSizes()
    log = Log.open(tmp_path, LogConfig(), OpenFiles(8, calls), clean=True)
    for _ in range(20):
        append(log, 2, size_bytes=4000)
    first = log.read(Offset(1), 30_000, limit_offset=log.log_end_offset)
    assert (offsets(first), calls.sizes_bytes) == ([0, 1, 2, 3, 4, 5], [30_000 + 4096])
    second = log.read(first.next_offset, 30_000, limit_offset=log.log_end_offset)
    assert (offsets(second)[0], calls.sizes_bytes[1:]) == (6, [30_000])


def test_gaps_between_batches_lead_to_the_next_batch_even_across_segments(tmp_path: Path) -> None:
    log = open_log(tmp_path, LogConfig(segment_bytes=100))
    for offset in (0, 10, 20):
        data = make_batch(offset)
        log.append(data, read_header(data), 0)
    assert len(log.segments) == 3
    for wanted, found in [(0, 0), (1, 10), (9, 10), (10, 10), (11, 20), (20, 20)]:
        assert offsets(log.read(Offset(wanted), 1, limit_offset=Offset(21))) == [found]


def test_log_rolls_when_offsets_leave_the_reach_of_the_index(tmp_path: Path) -> None:
    log = open_log(tmp_path, LogConfig())
    for offset in (5, 2**31 + 4, 2**31 + 5, 2**40):
        data = make_batch(offset)
        log.append(data, read_header(data), 0)
    assert [facts.base_offset for facts in log.segments] == [0, 2**31 + 4, 2**40]
    assert offsets(log.read(Offset(2**31 + 6), 1, limit_offset=log.log_end_offset)) == [2**40]


def test_every_offset_is_found_through_the_index_in_memory_and_on_file(tmp_path: Path) -> None:
    log = open_log(tmp_path, LogConfig(index_interval_bytes=150))
    for _ in range(700):
        append(log, 2)
    for synced in (False, True):
        for offset in range(0, 1400, 7):
            got = offsets(log.read(Offset(offset), 1, limit_offset=Offset(1400)))
            assert got == [offset - offset % 2, offset - offset % 2 + 1]
        if not synced:
            log.sync()
    assert os.path.getsize(tmp_path / f"{0:020d}.index") > 200 * 20


@pytest.mark.parametrize("damage", ["missing", "cut", "zeroed", "flipped"])
def test_damaged_index_is_rebuilt_from_the_segment(
    tmp_path: Path, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    log = open_log(tmp_path, LogConfig(index_interval_bytes=150))
    for i in range(100):
        append(log, 2, timestamp=i * 10)
    log.close()
    index = tmp_path / f"{0:020d}.index"
    content = index.read_bytes()
    if damage == "missing":
        index.unlink()
    elif damage == "cut":
        index.write_bytes(content[:-1])
    elif damage == "zeroed":
        index.write_bytes(bytes(len(content)))
    else:
        flipped = bytearray(content)
        for position in range(3, len(content), 20):
            flipped[position] ^= 1
        index.write_bytes(flipped)
    log = open_log(tmp_path, LogConfig(index_interval_bytes=150), clean=True)
    with caplog.at_level(logging.WARNING):
        assert offsets(log.read(Offset(151), 1, limit_offset=Offset(200))) == [150, 151]
    assert "rebuilding the index" in caplog.text
    assert log.find_by_timestamp(991) == (991, 199, 0)
    log.close()
    assert index.read_bytes() == content


def test_flipped_bit_in_a_batch_is_reported_with_file_and_position(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log = open_log(tmp_path, LogConfig())
    first = append(log)
    second = append(log)
    append(log)
    log.sync()
    path = tmp_path / f"{0:020d}.log"
    data = bytearray(path.read_bytes())
    data[len(first) + len(second) - 1] ^= 1
    path.write_bytes(data)
    assert offsets(log.read(Offset(0), 10_000, limit_offset=Offset(3))) == [0]
    for _ in range(2):
        with pytest.raises(CorruptMessage, match=rf"{path} .* position {len(first)}"):
            log.read(Offset(1), 10_000, limit_offset=Offset(3))
    assert caplog.text.count("damaged") == 1
    assert offsets(log.read(Offset(2), 10_000, limit_offset=Offset(3))) == [2]


@pytest.mark.parametrize("position", [8, 9, 16, 23])
def test_damaged_header_is_never_served(tmp_path: Path, position: int) -> None:
    log = open_log(tmp_path, LogConfig())
    first = append(log)
    append(log)
    path = tmp_path / f"{0:020d}.log"
    data = bytearray(path.read_bytes())
    data[len(first) + position] ^= 0x80
    path.write_bytes(data)
    assert offsets(log.read(Offset(0), 10_000, limit_offset=Offset(2))) == [0]
    with pytest.raises(CorruptMessage):
        log.read(Offset(1), 10_000, limit_offset=Offset(2))


def test_segment_file_that_lost_its_end_is_damaged_there(tmp_path: Path) -> None:
    log = open_log(tmp_path, LogConfig())
    first = append(log)
    append(log)
    os.truncate(tmp_path / f"{0:020d}.log", len(first) + 10)
    assert offsets(log.read(Offset(0), 10_000, limit_offset=Offset(2))) == [0]
    with pytest.raises(CorruptMessage, match=f"position {len(first)}"):
        log.read(Offset(1), 10_000, limit_offset=Offset(2))


def test_segment_file_that_is_gone_is_a_storage_failure(tmp_path: Path) -> None:
    log = open_log(tmp_path, LogConfig())
    append(log)
    log.close()
    log = open_log(tmp_path, LogConfig(), clean=True)
    os.unlink(tmp_path / f"{0:020d}.log")
    with pytest.raises(StorageFailed):
        log.read(Offset(0), 100, limit_offset=Offset(1))
