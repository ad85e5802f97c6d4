"""Which reads would wait for the disk, and that it is told without waiting."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kafkaesque.model.ids import Offset
from kafkaesque.storage.config import LogConfig
from kafkaesque.storage.log import Log
from kafkaesque.storage.open_files import OpenFiles, SystemCalls

from .batches import append

MIB = 1024 * 1024
BATCH_BYTES = 100_000


class PageCache(SystemCalls):
    """Everything from `cold_from` on is on the disk only; remembers what was asked for."""

    def __init__(self) -> None:
        self.cold_from = 2**62
        self.asked: list[int] = []

    def is_in_memory(self, fd: int, position: int) -> bool:
        self.asked.append(position)
        return position < self.cold_from


def long_log(path: Path, calls: SystemCalls, segment_bytes: int = 100 * MIB) -> Log:
    """Three MiB of batches with one record each."""
    config = LogConfig(segment_bytes=segment_bytes, retention_ms=-1)
    log = Log.open(path, config, OpenFiles(8, calls), clean=False)
    for _ in range(32):
        append(log, 1, size_bytes=BATCH_BYTES)
    return log


def read(log: Log, offset: int) -> None:
    log.read(Offset(offset), MIB, limit_offset=log.log_end_offset)


def test_samples_of_what_will_be_read_are_asked_for(tmp_path: Path) -> None:
    calls = PageCache()
    log = long_log(tmp_path, calls)
    assert not log.would_wait(Offset(2), MIB)
    first, *between, last = calls.asked
    start = log._chain.active.remembered(2)
    assert start is not None
    assert (first, last) == (start, start + MIB - 1)
    assert between == []
    for cold_from in (start, start + 1, last):
        calls.cold_from = cold_from
        assert log.would_wait(Offset(2), MIB)
    calls.cold_from = last + 1
    assert not log.would_wait(Offset(2), MIB)
    calls.asked.clear()
    assert log.would_wait(Offset(2), 2 * MIB)
    assert calls.asked == [start, start + MIB]


def test_who_follows_the_end_or_asks_beyond_the_log_never_waits(tmp_path: Path) -> None:
    calls = PageCache()
    calls.cold_from = 0
    log = long_log(tmp_path, calls)
    for offset in (-1, 22, 31, 32, 33):
        assert not log.would_wait(Offset(offset), MIB)
    assert calls.asked == []
    assert log.would_wait(Offset(20), MIB)


def test_closed_segment_in_which_a_place_has_to_be_looked_up_is_not_asked_on_the_way(
    tmp_path: Path,
) -> None:
    calls = PageCache()
    log = long_log(tmp_path, calls, segment_bytes=MIB)
    log.close(clean=True)
    log = Log.open(tmp_path, LogConfig(segment_bytes=MIB), OpenFiles(8, calls), clean=True)
    assert log.would_wait(Offset(3), MIB)
    assert calls.asked == []
    read(log, 3)
    after = log.read(Offset(3), 2 * BATCH_BYTES, limit_offset=log.log_end_offset).next_offset
    assert not log.would_wait(after, BATCH_BYTES)
    assert calls.asked


def test_file_that_cannot_be_opened_is_left_to_the_read(tmp_path: Path) -> None:
    log = long_log(tmp_path, PageCache())
    log._chain.active.unpin(log.files)
    log.files.close()
    for path in tmp_path.glob("*.log"):
        path.unlink()
    assert not log.would_wait(Offset(2), MIB)


def test_real_page_cache_tells_what_it_has(tmp_path: Path) -> None:
    log = long_log(tmp_path, SystemCalls())
    log.sync()
    assert not log.would_wait(Offset(0), MIB)
    fd = log.files.acquire(log._chain.active.file)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    if SystemCalls().is_in_memory(fd, 0):
        pytest.skip(f"the file system of {tmp_path} keeps its pages (tmpfs?): use --basetemp")
    assert log.would_wait(Offset(0), MIB)
    read(log, 0)
    assert not log.would_wait(Offset(0), MIB)
