"""`Log.on_disk`: what to load so that a read does not wait for the disk, found without waiting."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.broker.storage.batches import append

from kafkaesque.broker.storage import open_files
from kafkaesque.broker.storage.config import LogConfig
from kafkaesque.broker.storage.log import Log
from kafkaesque.broker.storage.open_files import OpenFiles, SystemCalls
from kafkaesque.model.ids import Offset

MIB = 1024 * 1024
BATCH_BYTES = 100_000
BATCHES = 32


class PageCache(SystemCalls):
    """Files that are not in the page cache from a position on. Counts the reads of each."""

    def __init__(self) -> None:
        self.cold: dict[str, int] = {}
        self.asked: list[int] = []
        self.read: list[str] = []

    def is_in_memory(self, fd: int, position: int) -> bool:
        self.asked.append(position)
        return position < self.cold.get(_suffix(fd), 2**62)

    def pread(self, fd: int, size_bytes: int, position: int) -> bytes:  # type: ignore[override]
        self.read.append(_suffix(fd))
        return os.pread(fd, size_bytes, position)


def _suffix(fd: int) -> str:
    return Path(os.readlink(f"/proc/self/fd/{fd}")).suffix


def open_log(path: Path, calls: SystemCalls, segment_bytes: int = 100 * MIB) -> Log:
    config = LogConfig(segment_bytes=segment_bytes, retention_ms=-1)
    return Log.open(path, config, OpenFiles(8, calls), clean=True)


def long_log(path: Path, calls: SystemCalls, segment_bytes: int = 100 * MIB) -> Log:
    """Three MiB of batches with one record each."""
    log = open_log(path, calls, segment_bytes)
    for _ in range(BATCHES):
        append(log, 1, size_bytes=BATCH_BYTES)
    return log


@pytest.fixture
def middle(monkeypatch: pytest.MonkeyPatch) -> float:
    monkeypatch.setattr(open_files, "random", lambda: 0.5)
    return 0.5


@pytest.mark.usefixtures("middle")
def test_two_probes_of_the_range_decide(tmp_path: Path) -> None:
    calls = PageCache()
    log = long_log(tmp_path, calls)
    start = log._chain.active.position_in_memory(2)
    assert start is not None
    assert log.on_disk(Offset(2), MIB) is None
    size_bytes = MIB + log.config.index_interval_bytes
    last = start + size_bytes - 1
    assert sorted(calls.asked) == [start + (size_bytes - 1) // 2, last]
    for cold_from in (start, start + 1, last):
        calls.cold = {".log": cold_from}
        found = log.on_disk(Offset(2), MIB)
        assert found is not None
        assert found[1:] == (start, size_bytes)
        assert found.file is log._chain.active.file
    calls.cold = {".log": last + 1}
    assert log.on_disk(Offset(2), MIB) is None


def test_nothing_to_load_near_the_end_or_beyond_the_log(tmp_path: Path) -> None:
    calls = PageCache()
    calls.cold = {".log": 0, ".index": 0}
    log = long_log(tmp_path, calls)
    for offset in (-1, 22, 31, BATCHES, BATCHES + 1):
        assert log.on_disk(Offset(offset), MIB) is None
    assert calls.asked == []
    assert log.on_disk(Offset(20), MIB) is not None


@pytest.mark.parametrize("segment_bytes", [MIB, 100 * MIB], ids=["closed", "active"])
def test_index_is_loaded_first_where_it_has_to_be_read(tmp_path: Path, segment_bytes: int) -> None:
    calls = PageCache()
    long_log(tmp_path, calls, segment_bytes).close(clean=True)
    log = open_log(tmp_path, calls, segment_bytes)
    calls.read.clear()
    index = log.on_disk(Offset(3), MIB)
    assert index is not None
    assert index.file.path.endswith(".index")
    assert index.size_bytes == os.path.getsize(index.file.path)
    assert (calls.read, calls.asked) == ([], []), "not even opened to find out"
    batches = log.on_disk(Offset(3), MIB, {index.start})
    assert batches is not None
    assert batches.file.path.endswith(".log")
    assert set(calls.read) == {".index"}
    assert log.on_disk(Offset(3), MIB, {index.start, batches.start}) is None, "tried is tried"
    log.read(Offset(2), BATCH_BYTES, limit_offset=log.log_end_offset)
    assert log.on_disk(Offset(3), MIB) is None
    calls.cold = {".log": 0, ".index": 0}
    known = log.on_disk(Offset(3), MIB)
    assert known is not None
    assert known.file.path.endswith(".log"), "where the last read ended needs no index"
    seek = log.on_disk(Offset(5), MIB)
    assert seek is not None
    assert seek.file.path.endswith(".index")


def test_end_of_a_log_written_before_the_start_is_probed(tmp_path: Path) -> None:
    calls = PageCache()
    log = open_log(tmp_path, calls)
    append(log, 1)
    assert log.on_disk(Offset(0), MIB) is None
    log.close(clean=True)
    log = open_log(tmp_path, calls)
    append(log, 1)
    assert log.on_disk(Offset(1), MIB) is None
    calls.cold = {".log": 0}
    assert log.on_disk(Offset(0), MIB) is not None
    log.truncate_to(Offset(0))
    append(log, 1)
    assert log.on_disk(Offset(0), MIB) is None


def test_index_in_memory_needs_no_file(tmp_path: Path) -> None:
    calls = PageCache()
    log = long_log(tmp_path, calls)
    active = log._chain.active
    for offset in range(BATCHES):
        expected = active.position_in_memory(offset)
        active._recent = None
        found = active.position_in_memory(offset)
        assert found is not None
        assert expected is not None
        assert found <= expected < found + 2 * BATCH_BYTES
        assert active.place_of(log.files, offset)[1] == found
    log.sync()
    assert active.position_in_memory(5) is None
    append(log, 1)
    assert active.position_in_memory(BATCHES) is not None
    assert active.position_in_memory(5) is None


@pytest.mark.parametrize("harm", ["missing", "damaged"])
def test_file_errors_are_left_to_the_read(tmp_path: Path, harm: str) -> None:
    long_log(tmp_path, PageCache(), MIB).close(clean=True)
    log = open_log(tmp_path, PageCache(), MIB)
    for path in tmp_path.glob("*.index"):
        if harm == "missing":
            path.unlink()
        else:
            path.write_bytes(b"?" * path.stat().st_size)
    index = log.on_disk(Offset(3), MIB)
    assert index is not None
    index.load()
    assert log.on_disk(Offset(3), MIB, {index.start}) is None
    assert log.read(Offset(3), 1, limit_offset=log.log_end_offset).next_offset == 4


def test_real_page_cache_reports_what_it_holds_and_keeps_what_is_loaded(tmp_path: Path) -> None:
    log = long_log(tmp_path, SystemCalls())
    log.sync()
    assert log.on_disk(Offset(0), MIB) is None
    fd = log.files.acquire(log._chain.active.file)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    if SystemCalls().is_in_memory(fd, 0):
        pytest.skip(f"{tmp_path} is not on a disk (tmpfs?): run pytest with --basetemp on one")
    found = log.on_disk(Offset(0), MIB)
    assert found is not None
    found.load()
    assert log.on_disk(Offset(0), MIB) is None


def test_load_of_a_missing_file_does_nothing(tmp_path: Path) -> None:
    file = open_files.OpenFile(str(tmp_path / "gone"))
    open_files.FileRange(file, 0, 100).load()
    (tmp_path / "gone").write_bytes(b"short")
    open_files.FileRange(file, 2, 100).load()
