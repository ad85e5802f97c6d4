"""One log: appending, reading, finding, cutting, deleting."""

from __future__ import annotations

import logging
import os
import resource
import signal
import subprocess
import threading
from pathlib import Path

import pytest

from kafkaesque.model.errors import (
    CorruptMessage,
    InvariantBroken,
    OffsetOutOfRange,
    StorageFailed,
)
from kafkaesque.model.ids import Offset
from kafkaesque.records.batch import Codec, read_header, reseal, stamp_append_time
from kafkaesque.storage.config import LogConfig
from kafkaesque.storage.log import Log
from kafkaesque.storage.open_files import OpenFiles, SystemCalls

from .batches import SMALL, append, make_batch, offsets, open_log, read_all


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


def test_batches_at_or_behind_the_limit_offset_are_not_read(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    for _ in range(4):
        append(log, 2)
    assert offsets(log.read(Offset(0), 10_000, limit_offset=Offset(4))) == [0, 1, 2, 3]
    assert log.read(Offset(4), 10_000, limit_offset=Offset(4)).records == b""
    assert log.read(Offset(5), 10_000, limit_offset=Offset(4)).records == b""


def test_size_limit_cuts_between_batches_but_grants_the_first(tmp_path: Path) -> None:
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


def test_gaps_between_batches_lead_to_the_next_batch_even_across_segments(tmp_path: Path) -> None:
    log = open_log(tmp_path, LogConfig(segment_bytes=100))
    for offset in (0, 10, 20):
        data = make_batch(offset)
        log.append(data, read_header(data), 0)
    assert len(log.segments) == 3
    for wanted, found in [(0, 0), (1, 10), (9, 10), (10, 10), (11, 20), (20, 20)]:
        assert offsets(log.read(Offset(wanted), 1, limit_offset=Offset(21))) == [found]


def test_batch_before_the_end_or_of_another_size_breaks_an_invariant(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    append(log, 5)
    data = make_batch(4)
    with pytest.raises(InvariantBroken):
        log.append(data, read_header(data), 0)
    data = make_batch(5)
    with pytest.raises(InvariantBroken):
        log.append(data + b"x", read_header(data), 0)


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


def test_log_rolls_when_offsets_leave_the_reach_of_the_index(tmp_path: Path) -> None:
    log = open_log(tmp_path, LogConfig())
    for offset in (5, 2**31 + 4, 2**31 + 5, 2**40):
        data = make_batch(offset)
        log.append(data, read_header(data), 0)
    assert [facts.base_offset for facts in log.segments] == [0, 2**31 + 4, 2**40]
    assert offsets(log.read(Offset(2**31 + 6), 1, limit_offset=log.log_end_offset)) == [2**40]


def test_changed_settings_hold_for_the_next_append(tmp_path: Path) -> None:
    log = open_log(tmp_path, LogConfig())
    append(log)
    log.set_config(LogConfig(segment_bytes=1))
    append(log)
    assert len(log.segments) == 2


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


# -- time


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


# -- epochs, headers, snapshots


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


def test_headers_are_listed_from_the_batch_with_the_offset_on(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    for _ in range(30):
        append(log, 2, size_bytes=100)
    assert len(log.segments) > 3
    for first in range(60):
        found = [header.base_offset for header in log.headers_from(Offset(first))]
        assert found == list(range(first - first % 2, 60, 2))
    assert list(log.headers_from(Offset(60))) == []


def test_snapshots_are_kept_by_offset_and_die_with_what_they_describe(tmp_path: Path) -> None:
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
    assert log.latest_snapshot(Offset(3)) is None


# -- cutting and deleting


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
    assert log.epoch_end(6) == (6, 14)
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


def test_deleted_records_are_gone_for_good(tmp_path: Path) -> None:
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


def test_log_may_be_emptied_by_deletion_and_go_on(tmp_path: Path) -> None:
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


def test_expired_log_starts_anew_at_its_end(tmp_path: Path) -> None:
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


def test_retention_spares_what_is_not_committed(tmp_path: Path) -> None:
    log = open_log(tmp_path, LogConfig(segment_bytes=100, retention_ms=100))
    for timestamp in (10, 20, 30):
        append(log, 1, timestamp=timestamp)
    assert log.apply_retention(1000, end_offset=Offset(1)).segments == 1
    assert log.log_start_offset == 1


def test_deleted_log_leaves_nothing(tmp_path: Path) -> None:
    log = open_log(tmp_path / "log")
    append(log)
    log.sync()
    log.delete()
    assert os.listdir(tmp_path) == []


# -- failing disks


def _assert_usable(log: Log, kept: int) -> None:
    """Nothing of a failed append is left, and the log goes on."""
    assert log.log_end_offset == kept
    assert len(read_all(log)) == kept
    append(log, 1)
    assert len(read_all(log)) == kept + 1


def test_disk_full_on_tmpfs_rolls_back_and_goes_on_when_space_returns(tmp_path: Path) -> None:
    mount = tmp_path / "small"
    mount.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(mount)]
    mounted = subprocess.run(command, capture_output=True, text=True, check=False)
    if mounted.returncode != 0:
        pytest.skip(f"needs the right to mount a tmpfs (root, CAP_SYS_ADMIN): {mounted.stderr}")
    try:
        ballast = mount / "ballast"
        ballast.write_bytes(bytes(100_000))
        log = open_log(mount / "log", LogConfig(segment_bytes=50_000))
        with pytest.raises(StorageFailed, match="No space"):
            for _ in range(100):
                append(log, 1, size_bytes=7000)
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
    finally:
        subprocess.run(["umount", "-l", str(mount)], check=True)


def test_retention_relieves_a_full_disk(tmp_path: Path) -> None:
    mount = tmp_path / "small"
    mount.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(mount)]
    mounted = subprocess.run(command, capture_output=True, text=True, check=False)
    if mounted.returncode != 0:
        pytest.skip(f"needs the right to mount a tmpfs (root, CAP_SYS_ADMIN): {mounted.stderr}")
    try:
        config = LogConfig(segment_bytes=50_000, retention_bytes=100_000)
        log = open_log(mount / "log", config)
        with pytest.raises(StorageFailed):
            for _ in range(100):
                append(log, 1, size_bytes=7000)
        (mount / "rest").write_bytes(bytes(os.statvfs(mount).f_bavail * 4096))
        assert log.apply_retention(0).segments > 0
        append(log, 1, size_bytes=7000)
        end = log.log_end_offset
        start = log.log_start_offset
        log.close(clean=False)
        log = open_log(mount / "log", config)
        assert (log.log_start_offset, log.log_end_offset) == (start, end)
        assert len(read_all(log)) == end - start
    finally:
        subprocess.run(["umount", "-l", str(mount)], check=True)


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


class FailingCalls(SystemCalls):
    """The real system calls, some of which fail."""

    def __init__(self) -> None:
        self.failing: set[str] = set()

    def _maybe_fail(self, name: str) -> None:
        if name in self.failing:
            raise OSError(5, f"Input/output error ({name})")

    def pwrite(self, fd: int, data: bytes | bytearray | memoryview, position: int) -> int:
        if "pwrite" in self.failing:
            super().pwrite(fd, memoryview(data)[: len(data) // 2], position)
        self._maybe_fail("pwrite")
        return super().pwrite(fd, data, position)

    def ftruncate(self, fd: int, size_bytes: int) -> None:
        self._maybe_fail("ftruncate")
        super().ftruncate(fd, size_bytes)

    def fdatasync(self, fd: int) -> None:
        self._maybe_fail("fdatasync")
        super().fdatasync(fd)

    def sync_directory(self, path: str) -> None:
        self._maybe_fail("sync_directory")
        super().sync_directory(path)


def test_append_is_refused_until_a_half_written_batch_could_be_removed(tmp_path: Path) -> None:
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


@pytest.mark.parametrize("call", ["fdatasync", "sync_directory"])
def test_failed_fsync_is_final_and_readers_get_what_was_synced_before(
    tmp_path: Path, call: str
) -> None:
    calls = FailingCalls()
    log = Log.open(tmp_path, LogConfig(segment_bytes=100), OpenFiles(8, calls), clean=False)
    append(log)
    assert log.sync() == 1
    append(log)
    calls.failing = {call}
    with pytest.raises(StorageFailed):
        log.sync()
    calls.failing = set()
    assert log.failure is not None
    for attempt in (log.sync, lambda: append(log), lambda: log.delete_before(Offset(1))):
        with pytest.raises(StorageFailed):
            attempt()
    assert log.synced_offset == 1
    assert offsets(log.read(Offset(0), 10_000, limit_offset=Offset(2))) == [0]
    assert log.read(Offset(1), 10_000, limit_offset=Offset(2)).records == b""
    log.close()


def test_small_files_that_cannot_be_written_only_make_recovery_read_more(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    for epoch in range(3):
        append(log, 1, epoch=epoch)
    blocker = tmp_path / "structure.tmp"
    blocker.mkdir()
    assert log.sync() == 3
    assert log.needs_sync
    with pytest.raises(StorageFailed):
        log.delete_before(Offset(1))
    blocker.rmdir()
    log.sync()
    assert not log.needs_sync
    log.close(clean=False)
    log = open_log(tmp_path)
    assert (log.synced_offset, log.log_start_offset, len(log.segments)) == (3, 1, 1)


# -- descriptors and threads


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


def test_sync_in_a_thread_goes_along_with_appends_and_reads(tmp_path: Path) -> None:
    log = open_log(tmp_path, LogConfig(segment_bytes=5000, index_interval_bytes=200))
    done = threading.Event()
    errors: list[BaseException] = []
    synced: list[int] = []

    def sync_until_done() -> None:
        try:
            while not done.is_set():
                synced.append(log.sync())
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=sync_until_done)
    thread.start()
    for i in range(600):
        append(log, 2, epoch=i // 100)
        if i % 50 == 0:
            assert len(read_all(log, max_bytes=2000)) == i + 1
    done.set()
    thread.join()
    assert errors == []
    assert synced == sorted(synced)
    assert log.synced_offset <= log.log_end_offset == 1200
    log.close(clean=False)
    log = open_log(tmp_path)
    assert log.synced_offset >= synced[-1]
    assert [header.base_offset for header in read_all(log)] == list(range(0, 1200, 2))
    assert log.epoch_end(2) == (2, 600)


def test_retention_in_a_thread_never_deletes_what_is_appended_meanwhile(tmp_path: Path) -> None:
    log = open_log(tmp_path, LogConfig(segment_bytes=300, retention_ms=0))
    done = threading.Event()
    errors: list[BaseException] = []

    def delete_until_done() -> None:
        try:
            while not done.is_set():
                log.apply_retention(10_000)
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=delete_until_done)
    thread.start()
    for i in range(300):
        expired = i % 2 == 0
        append(log, 1, timestamp=1 if expired else 20_000)
        if not expired:
            offset = Offset(log.log_end_offset - 1)
            assert offsets(log.read(offset, 1, limit_offset=log.log_end_offset)) == [offset]
            log.delete_before(log.log_end_offset)
    done.set()
    thread.join()
    assert errors == []


def test_segment_closed_since_the_last_sync_is_announced(tmp_path: Path) -> None:
    log = open_log(tmp_path, LogConfig(segment_bytes=100))
    append(log)
    assert not log.has_unsynced_closed_segment
    append(log)
    assert log.has_unsynced_closed_segment
    log.sync()
    assert not log.has_unsynced_closed_segment


def test_directory_and_settings_are_told(tmp_path: Path) -> None:
    log = open_log(tmp_path / "x")
    assert log.directory == tmp_path / "x"
    assert log.config is SMALL
