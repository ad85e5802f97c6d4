"""One segment: full segments and full disks."""

from __future__ import annotations

import os
import resource
import signal
from pathlib import Path

import pytest
from tests.broker.storage.batches import append, fill, make_batch, open_log, read_all
from tests.broker.storage.failing import FailingCalls, small_disk

from kafkaesque.broker.storage.config import LogConfig
from kafkaesque.broker.storage.log import Log
from kafkaesque.broker.storage.open_files import OpenFiles, SystemCalls
from kafkaesque.broker.storage.rules.segment_facts import SegmentFacts
from kafkaesque.broker.storage.segment import Segment
from kafkaesque.model.errors import (
    StorageFailed,
)
from kafkaesque.model.ids import Offset
from kafkaesque.records.batch import read_header


@pytest.mark.parametrize(
    ("config", "timestamps", "segments"),
    [
        (LogConfig(segment_bytes=10_000), [1, 2, 3], 1),
        (LogConfig(segment_bytes=300), [1, 2, 3, 4], 2),
        (LogConfig(segment_bytes=90), [1, 2, 3], 3),
        (LogConfig(segment_ms=10), [100, 110, 105], 1),
        (LogConfig(segment_ms=10), [100, 111, 112], 2),
        (LogConfig(segment_ms=10), [100, 50, 111], 2),
        (LogConfig(segment_ms=10), [-1, -1], 1),
        (LogConfig(index_interval_bytes=0, segment_index_bytes=40), [1, 2, 3, 4], 2),
    ],
    ids=["fits", "size", "each", "young", "old", "by-first", "no-time", "index-full"],
)
def test_log_rolls_by_size_age_and_index(
    tmp_path: Path, config: LogConfig, timestamps: list[int], segments: int
) -> None:
    log = open_log(tmp_path, config)
    for timestamp in timestamps:
        append(log, 1, timestamp=timestamp)
    assert len(log.segments) == segments
    assert len(read_all(log)) == len(timestamps)


def _assert_usable(log: Log, kept: int) -> None:
    """A failed append leaves nothing, and the log accepts the next one."""
    assert log.log_end_offset == kept
    assert len(read_all(log)) == kept
    append(log, 1)
    assert len(read_all(log)) == kept + 1


def test_disk_full_on_tmpfs_rolls_back_and_appends_again_when_space_returns(tmp_path: Path) -> None:
    with small_disk(tmp_path) as mount:
        ballast = mount / "ballast"
        ballast.write_bytes(bytes(100_000))
        log = open_log(mount / "log", LogConfig(segment_bytes=50_000))
        assert "No space" in fill(log)
        kept = log.log_end_offset
        assert kept > 5
        with pytest.raises(StorageFailed):
            append(log, 1, size_bytes=7000)
        on_disk = sum(path.stat().st_size for path in (mount / "log").glob("*.log"))
        assert on_disk == log.size_bytes
        ballast.unlink()
        _assert_usable(log, kept)
        log.close(clean=False)
        assert len(read_all(open_log(mount / "log"))) == kept + 1


def test_file_size_limit_in_the_middle_of_a_batch_is_rolled_back(tmp_path: Path) -> None:
    log = open_log(tmp_path, LogConfig())
    for _ in range(3):
        append(log, 1, size_bytes=1000)
    kept_bytes = log.size_bytes
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (kept_bytes + 500, limit[1]))
    try:
        with pytest.raises(StorageFailed):
            append(log, 1, size_bytes=1000)
        assert os.path.getsize(tmp_path / f"{0:020d}.log") == kept_bytes
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
        signal.signal(signal.SIGXFSZ, handler)
    _assert_usable(log, 3)


def test_append_is_rejected_until_a_half_written_batch_could_be_removed(tmp_path: Path) -> None:
    calls = FailingCalls()
    log = Log.open(tmp_path, LogConfig(), OpenFiles(8, calls), clean=False)
    append(log)
    kept_bytes = log.size_bytes
    calls.failing = {"pwrite", "ftruncate"}
    with pytest.raises(StorageFailed):
        append(log)
    calls.failing = {"ftruncate"}
    with pytest.raises(StorageFailed, match="repair"):
        append(log)
    assert os.path.getsize(tmp_path / f"{0:020d}.log") > kept_bytes
    assert len(read_all(log)) == 1
    calls.failing = set()
    _assert_usable(log, 1)
    assert os.path.getsize(tmp_path / f"{0:020d}.log") == log.size_bytes


class ShortCalls(SystemCalls):
    """Each write is cut in half, as the kernel may do."""

    def pwrite(self, fd: int, data: bytes | bytearray | memoryview, position: int) -> int:
        return super().pwrite(fd, memoryview(data)[: len(data) // 2 + 1], position)


@pytest.mark.parametrize("files_max", [1, 8])
@pytest.mark.parametrize("calls", [SystemCalls(), ShortCalls()])
def test_batches_are_whole_with_and_without_a_pinned_descriptor(
    tmp_path: Path, files_max: int, calls: SystemCalls
) -> None:
    files = OpenFiles(files_max, calls)
    segment = Segment(str(tmp_path), SegmentFacts(Offset(0)))
    batches = [make_batch(offset) for offset in range(4)]
    for batch in batches:
        segment.append(files, batch, read_header(batch), 0, LogConfig())
    assert (segment._pinned_fd >= 0) is (files_max > 1)
    assert Path(segment.file.path).read_bytes() == b"".join(batches)
    segment.forget(files)
    assert len(files) == 0


def test_segment_that_was_rolled_does_not_hold_a_descriptor(tmp_path: Path) -> None:
    files = OpenFiles(4)
    log = Log.open(tmp_path, LogConfig(segment_bytes=1), files, clean=False)
    for _ in range(5):
        append(log)
    assert len(log.segments) == 5
    assert files._pinned_count == 1
    log.close()
    assert (files._pinned_count, len(files)) == (0, 0)
