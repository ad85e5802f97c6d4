"""One log: appending, reading, cutting, deleting, threads."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.broker.storage.batches import (
    SMALL,
    append,
    fill,
    make_batch,
    offsets,
    open_log,
    read_all,
)
from tests.broker.storage.failing import small_disk

from kafkaesque.broker.storage.config import LogConfig
from kafkaesque.broker.storage.log import Log
from kafkaesque.broker.storage.open_files import OpenFiles, SystemCalls
from kafkaesque.model.errors import (
    InvariantBroken,
    OffsetOutOfRange,
)
from kafkaesque.model.ids import Offset
from kafkaesque.records.batch import read_header


def test_new_log_is_empty_and_makes_no_file_until_the_first_append(tmp_path: Path) -> None:
    log = open_log(tmp_path / "a" / "0")
    assert (log.log_start_offset, log.log_end_offset, log.synced_offset) == (0, 0, 0)
    assert not log.needs_sync
    assert log.read(Offset(0), 100, limit_offset=Offset(0)) == (b"", 0)
    log.close()
    assert os.listdir(tmp_path / "a" / "0") == []


def test_appended_batches_are_read_back_byte_for_byte(tmp_path: Path) -> None:
    log = open_log(tmp_path, LogConfig())
    written = b"".join(append(log, count) for count in (1, 3, 2))
    result = log.read(Offset(0), 10_000, limit_offset=Offset(6))
    assert result.records == written
    assert result.next_offset == 6


@pytest.mark.parametrize("offset", range(2, 7))
def test_reader_at_mid_batch_offset_gets_the_whole_batch(tmp_path: Path, offset: int) -> None:
    log = open_log(tmp_path)
    append(log, 2)
    wanted = append(log, 5)
    append(log, 1)
    result = log.read(Offset(offset), 1, limit_offset=Offset(8))
    assert (result.records, result.next_offset) == (wanted, 7)


@pytest.mark.parametrize("offset", [-1, 4])
def test_offset_outside_the_log_is_out_of_range(tmp_path: Path, offset: int) -> None:
    log = open_log(tmp_path)
    append(log, 3)
    with pytest.raises(OffsetOutOfRange):
        log.read(Offset(offset), 100, limit_offset=Offset(3))


def test_batches_at_or_after_the_limit_offset_are_not_read(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    for _ in range(4):
        append(log, 2)
    assert offsets(log.read(Offset(0), 10_000, limit_offset=Offset(4))) == [0, 1, 2, 3]
    assert log.read(Offset(4), 10_000, limit_offset=Offset(4)).records == b""
    assert log.read(Offset(5), 10_000, limit_offset=Offset(4)).records == b""


def test_batch_before_the_end_or_of_another_size_breaks_an_invariant(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    append(log, 5)
    data = make_batch(4)
    with pytest.raises(InvariantBroken):
        log.append(data, read_header(data), 0)
    data = make_batch(5)
    with pytest.raises(InvariantBroken):
        log.append(data + b"x", read_header(data), 0)


def test_append_returns_the_segment_of_the_batch(tmp_path: Path) -> None:
    log = open_log(tmp_path, LogConfig(segment_bytes=300))
    segment_bases = []
    for offset in range(6):
        data = make_batch(offset)
        segment_bases.append(log.append(memoryview(data), read_header(data), 1000))
    assert segment_bases == [
        max(s.base_offset for s in log.segments if s.base_offset <= offset) for offset in range(6)
    ]
    assert len(set(segment_bases)) > 1


def test_changed_settings_apply_to_the_next_append(tmp_path: Path) -> None:
    log = open_log(tmp_path, LogConfig())
    append(log)
    log.set_config(LogConfig(segment_bytes=1))
    append(log)
    assert len(log.segments) == 2


def test_epochs_are_known_again_after_reopening(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    for epoch in (1, 1, 4, 4, 4, 7):
        append(log, 2, epoch=epoch)
    for clean in (None, True, False):
        if clean is not None:
            log.close(clean)
            log = open_log(tmp_path, clean=clean)
        assert [log.epoch_at(Offset(o)) for o in (0, 3, 4, 9, 10, 99)] == [1, 1, 4, 4, 7, 7]
        assert log.epoch_end(1) == (1, 4)
        assert log.epoch_end(2) == (1, 4)
        assert log.epoch_end(7) == (7, 12)
        assert log.epoch_end(8) == (-1, -1)
    log.delete_before(Offset(5))
    assert (log.epoch_end(1), log.epoch_at(Offset(5))) == ((1, 5), 4)


def test_headers_are_listed_from_the_batch_with_the_offset_on(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    for _ in range(30):
        append(log, 2, size_bytes=100)
    assert len(log.segments) > 3
    for first in range(60):
        found = [header.base_offset for header in log.headers_from(Offset(first))]
        assert found == list(range(first - first % 2, 60, 2))
    assert list(log.headers_from(Offset(60))) == []


def test_snapshots_are_kept_by_offset_and_deleted_with_what_they_describe(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    for _ in range(10):
        append(log)
        log.save_snapshot(log.log_end_offset, b"state at %d" % log.log_end_offset)
    assert log.latest_snapshot(Offset(7)) == (7, b"state at 7")
    log.truncate_to(Offset(5))
    assert log.latest_snapshot(Offset(100)) == (5, b"state at 5")
    log.delete_before(Offset(3))
    log.prune_snapshots(keep=2)
    assert log.latest_snapshot(Offset(4)) == (4, b"state at 4")
    assert log.latest_snapshot(Offset(3)) == (3, b"state at 3"), "tells of what was before"
    assert log.latest_snapshot(Offset(2)) is None


def test_truncated_log_ends_before_the_batch_with_the_offset(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    for i in range(20):
        append(log, 2, timestamp=i, epoch=i)
    log.sync()
    log.truncate_to(Offset(40))
    assert log.log_end_offset == 40
    log.truncate_to(Offset(15))
    assert (log.log_end_offset, log.synced_offset) == (14, 14)
    assert [header.base_offset for header in read_all(log)] == list(range(0, 14, 2))
    assert (log.epoch_end(6), log.epoch_end(7)) == ((6, 14), (-1, -1))
    assert log.max_timestamp() == (7, 13, 6)
    append(log, 1, epoch=50)
    assert [header.leader_epoch for header in read_all(log)] == [0, 1, 2, 3, 4, 5, 6, 50]
    log.close()
    assert len(read_all(open_log(tmp_path, clean=True))) == 8


def test_log_cut_and_written_again_recovers_what_was_written_last(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    for _ in range(12):
        append(log, 1, epoch=1)
    log.sync()
    log.truncate_to(Offset(3))
    for _ in range(4):
        append(log, 1, epoch=2)
    log.close(clean=False)
    log = open_log(tmp_path)
    assert [header.leader_epoch for header in read_all(log)] == [1, 1, 1, 2, 2, 2, 2]
    assert log.epoch_at(Offset(3)) == 2


def test_deleted_records_stay_deleted(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    for _ in range(20):
        append(log, 2)
    segments = len(log.segments)
    log.delete_before(Offset(21))
    assert log.log_start_offset == 21
    assert len(log.segments) < segments
    with pytest.raises(OffsetOutOfRange):
        log.read(Offset(20), 100, limit_offset=Offset(40))
    assert offsets(log.read(Offset(21), 1, limit_offset=Offset(40))) == [20, 21]
    log.delete_before(Offset(5))
    assert log.log_start_offset == 21
    with pytest.raises(OffsetOutOfRange):
        log.delete_before(Offset(41))
    log.close(clean=False)
    assert open_log(tmp_path).log_start_offset == 21


def test_log_may_be_emptied_by_deletion_and_continue(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    append(log, 10)
    log.delete_before(Offset(10))
    assert log.read(Offset(10), 100, limit_offset=Offset(10)).records == b""
    append(log, 1)
    log.close()
    log = open_log(tmp_path, clean=True)
    assert (log.log_start_offset, log.log_end_offset) == (10, 11)


def test_retention_deletes_old_segments_and_says_how_much(tmp_path: Path) -> None:
    log = open_log(tmp_path, LogConfig(segment_bytes=200, retention_ms=100))
    for timestamp in (10, 20, 300, 310):
        append(log, 1, timestamp=timestamp)
    sizes = [facts.size_bytes for facts in log.segments]
    assert len(sizes) == 2
    assert log.apply_retention(100) == (0, 0)
    assert log.apply_retention(200) == (1, sizes[0])
    assert (log.log_start_offset, log.log_end_offset) == (2, 4)
    assert sorted(p.name for p in tmp_path.glob("*.log")) == [f"{2:020d}.log"]


def test_expired_log_restarts_at_its_end(tmp_path: Path) -> None:
    log = open_log(tmp_path, LogConfig(segment_bytes=200, retention_ms=100))
    for timestamp in (10, 20, 30):
        append(log, 1, timestamp=timestamp)
    assert log.apply_retention(1000).segments == 2
    assert (log.log_start_offset, log.log_end_offset, log.size_bytes) == (3, 3, 0)
    assert log.apply_retention(1000) == (0, 0)
    log.close(clean=False)
    log = open_log(tmp_path)
    assert (log.log_start_offset, log.log_end_offset) == (3, 3)
    append(log, 1)
    assert offsets(log.read(Offset(3), 1, limit_offset=Offset(4))) == [3]


def test_retention_keeps_uncommitted_records(tmp_path: Path) -> None:
    log = open_log(tmp_path, LogConfig(segment_bytes=100, retention_ms=100))
    for timestamp in (10, 20, 30):
        append(log, 1, timestamp=timestamp)
    assert log.apply_retention(1000, committed_offset=Offset(1)).segments == 1
    assert log.log_start_offset == 1


def test_deleted_log_leaves_nothing(tmp_path: Path) -> None:
    log = open_log(tmp_path / "log")
    append(log)
    log.sync()
    log.delete()
    assert os.listdir(tmp_path) == []


def test_retention_relieves_a_full_disk(tmp_path: Path) -> None:
    with small_disk(tmp_path) as mount:
        config = LogConfig(segment_bytes=50_000, retention_bytes=100_000)
        log = open_log(mount / "log", config)
        fill(log)
        (mount / "rest").write_bytes(bytes(os.statvfs(mount).f_bavail * 4096))
        assert log.apply_retention(0).segments > 0
        append(log, 1, size_bytes=7000)
        end = log.log_end_offset
        start = log.log_start_offset
        log.close(clean=False)
        log = open_log(mount / "log", config)
        assert (log.log_start_offset, log.log_end_offset) == (start, end)
        assert len(read_all(log)) == end - start


def test_many_logs_with_many_segments_stay_within_the_bound_of_descriptors(tmp_path: Path) -> None:
    files = OpenFiles(5)
    config = LogConfig(segment_bytes=100)
    logs = [Log.open(tmp_path / str(i), config, files, clean=False) for i in range(10)]
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(4):
        for log in logs:
            append(log)
    for log in logs:
        log.sync()
        assert len(read_all(log)) == 4
    assert len(files) == 5
    assert len(os.listdir("/proc/self/fd")) <= before + 5
    for log in logs:
        log.close()
    assert len(files) == 0


def test_sync_in_a_thread_runs_concurrently_with_appends_and_reads(tmp_path: Path) -> None:
    log = open_log(tmp_path, LogConfig(segment_bytes=5000, index_interval_bytes=200))
    done = threading.Event()

    def sync_until_done() -> list[int]:
        synced = []
        while not done.is_set():
            synced.append(log.sync())
        return synced

    worker = ThreadPoolExecutor(1)
    syncing = worker.submit(sync_until_done)
    for i in range(600):
        append(log, 2, epoch=i // 100)
        if i % 50 == 0:
            assert len(read_all(log, max_bytes=2000)) == i + 1
    done.set()
    synced = syncing.result()
    worker.shutdown()
    assert synced == sorted(synced)
    assert log.synced_offset <= log.log_end_offset == 1200
    log.close(clean=False)
    log = open_log(tmp_path)
    assert log.synced_offset >= synced[-1]
    assert [header.base_offset for header in read_all(log)] == list(range(0, 1200, 2))
    assert log.epoch_end(2) == (2, 600)


class InterruptingCalls(SystemCalls):
    """Runs a callback during a system call."""

    def __init__(self) -> None:
        self.during_sync: list[Callable[[], object]] = []

    def fdatasync(self, fd: int) -> None:
        if self.during_sync:
            self.during_sync.pop()()
        super().fdatasync(fd)


def test_retention_never_deletes_records_appended_meanwhile(tmp_path: Path) -> None:
    calls = InterruptingCalls()
    config = LogConfig(segment_bytes=200, retention_ms=0)
    log = Log.open(tmp_path, config, OpenFiles(8, calls), clean=False)
    for _ in range(3):
        append(log, 1, timestamp=1)
    calls.during_sync = [lambda: append(log, 1, timestamp=1)]
    assert log.apply_retention(10_000).segments == 1
    assert (log.log_start_offset, log.log_end_offset) == (2, 4)
    assert len(read_all(log)) == 2
    assert log.apply_retention(10_000).segments == 1
    assert log.log_start_offset == 4


def test_segment_closed_since_the_last_sync_is_reported(tmp_path: Path) -> None:
    log = open_log(tmp_path, LogConfig(segment_bytes=100))
    append(log)
    assert not log.has_unsynced_closed_segment
    append(log)
    assert log.has_unsynced_closed_segment
    log.sync()
    assert not log.has_unsynced_closed_segment


def test_directory_and_settings_are_exposed(tmp_path: Path) -> None:
    log = open_log(tmp_path / "x")
    assert log.directory == tmp_path / "x"
    assert log.config is SMALL
