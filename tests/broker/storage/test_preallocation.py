"""Preallocation: zeros ahead of a fast-growing file are visible only in its size."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from tests.broker.storage.batches import append, open_log, read_all
from tests.broker.storage.failing import FailingCalls

from kafkaesque.broker.storage.config import LogConfig
from kafkaesque.broker.storage.log import Log
from kafkaesque.broker.storage.open_files import OpenFiles
from kafkaesque.model.errors import StorageFailed

FIRST = "00000000000000000000.log"
BATCH_BYTES = 16_000
LARGE = LogConfig(segment_bytes=64 * 1024 * 1024, retention_ms=-1)
PREALLOCATE_BYTES, PREALLOCATE_AFTER_BYTES = LARGE.preallocate_bytes, LARGE.preallocate_after_bytes
ENOUGH = (PREALLOCATE_AFTER_BYTES + PREALLOCATE_BYTES) // BATCH_BYTES + 2


def grow(log: Log, count: int = ENOUGH) -> None:
    for _ in range(count):
        append(log, 1, size_bytes=BATCH_BYTES)


def file_bytes(directory: Path) -> int:
    return (directory / FIRST).stat().st_size


@pytest.fixture
def grown(tmp_path: Path) -> Log:
    log = open_log(tmp_path, LARGE)
    grow(log)
    assert file_bytes(tmp_path) % PREALLOCATE_BYTES == 0
    assert file_bytes(tmp_path) > log.size_bytes
    return log


def test_readers_see_the_batches_and_no_preallocated_zeros(grown: Log) -> None:
    assert len(read_all(grown, max_bytes=100_000)) == ENOUGH
    append(grown, 3)
    assert len(read_all(grown, max_bytes=100_000)) == ENOUGH + 1


def test_clean_close_cuts_the_preallocated_zeros(grown: Log, tmp_path: Path) -> None:
    size_bytes, end = grown.size_bytes, grown.log_end_offset
    grown.sync()
    grown.close()
    assert file_bytes(tmp_path) == size_bytes
    again = open_log(tmp_path, LARGE, clean=True)
    assert (again.size_bytes, again.log_end_offset) == (size_bytes, end)


def test_crash_loses_nothing_and_is_not_reported_as_a_torn_tail(
    grown: Log, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    size_bytes, end = grown.size_bytes, grown.log_end_offset
    grown.close(clean=False)
    with caplog.at_level(logging.WARNING):
        again = open_log(tmp_path, LARGE)
    assert not caplog.records
    assert (again.size_bytes, again.log_end_offset) == (size_bytes, end)
    assert file_bytes(tmp_path) == size_bytes
    append(again)
    assert len(read_all(again, max_bytes=100_000)) == ENOUGH + 1


def test_closed_segment_ends_with_its_last_batch_and_is_synced_so(
    grown: Log, tmp_path: Path
) -> None:
    size_bytes = grown.size_bytes
    grown.sync()
    grown.roll()
    assert file_bytes(tmp_path) == size_bytes
    assert grown.has_unsynced_closed_segment
    append(grown)
    grown.close(clean=False)
    again = open_log(tmp_path, LARGE)
    assert len(read_all(again, max_bytes=100_000)) == ENOUGH + 1


def test_append_after_a_cut_continues_at_the_cut(grown: Log, tmp_path: Path) -> None:
    grown.truncate_to(grown.log_end_offset)
    end = grown.log_end_offset
    grown.truncate_to(type(end)(end - 1))
    grow(grown, 3)
    grown.close(clean=False)
    again = open_log(tmp_path, LARGE)
    assert len(read_all(again, max_bytes=100_000)) == ENOUGH + 2


def test_file_that_is_synced_all_the_time_is_not_written_twice(tmp_path: Path) -> None:
    log = open_log(tmp_path, LARGE)
    for _ in range(ENOUGH):
        grow(log, 1)
        log.sync()
    assert file_bytes(tmp_path) == log.size_bytes


def test_nothing_is_laid_out_beyond_the_segments_bound(tmp_path: Path) -> None:
    bound = LogConfig(segment_bytes=PREALLOCATE_AFTER_BYTES + PREALLOCATE_BYTES, retention_ms=-1)
    log = open_log(tmp_path, bound)
    grow(log, 2 * ENOUGH)
    assert max(path.stat().st_size for path in tmp_path.glob("*.log")) <= bound.segment_bytes
    assert len(read_all(log, max_bytes=100_000)) == 2 * ENOUGH


class _NoRoomAhead(FailingCalls):
    """A disk with room for a batch and no more."""

    def pwrite(self, fd: int, data: bytes | bytearray | memoryview, position: int) -> int:
        if len(data) == PREALLOCATE_BYTES:
            super().pwrite(fd, memoryview(data)[:5000], position)
            raise OSError(28, "No space left on device")
        return super().pwrite(fd, data, position)


def test_full_disk_is_not_preallocated(tmp_path: Path) -> None:
    log = Log.open(tmp_path, LARGE, OpenFiles(8, _NoRoomAhead()), clean=False)
    grow(log)
    assert file_bytes(tmp_path) == log.size_bytes
    assert len(read_all(log, max_bytes=100_000)) == ENOUGH


def test_segment_that_cannot_be_cut_is_not_closed(tmp_path: Path) -> None:
    calls = FailingCalls()
    log = Log.open(tmp_path, LARGE, OpenFiles(8, calls), clean=False)
    grow(log)
    calls.failing = {"ftruncate"}
    with pytest.raises(StorageFailed, match="cannot cut"):
        log.roll()
    calls.failing = set()
    log.roll()
    append(log)
    assert len(read_all(log, max_bytes=100_000)) == ENOUGH + 1
