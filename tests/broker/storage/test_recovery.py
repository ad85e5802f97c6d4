"""Recovery after a crash: torn tails are cut, and nothing else."""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest
from msgspec import structs
from tests.broker.storage.batches import SMALL, append, offsets, open_log, read_all
from tests.broker.storage.failing import FailingCalls

from kafkaesque.broker.storage.checkpoint import STRUCTURE_NAME, SYNC_POINT_NAME, LogStructure
from kafkaesque.broker.storage.config import LogConfig
from kafkaesque.broker.storage.durability import Durability
from kafkaesque.broker.storage.log import Log
from kafkaesque.broker.storage.open_files import OpenFile, OpenFiles, SystemCalls
from kafkaesque.lab.sim.disk import SimulatedDisk
from kafkaesque.model.errors import CorruptMessage, StorageFailed
from kafkaesque.model.ids import Offset
from kafkaesque.records.layout import HEADER_SIZE_BYTES

ONE_SEGMENT = LogConfig(retention_ms=-1)
FIRST = f"{0:020d}.log"


def _copies(source: Path, target: Path) -> Path:
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(source, target)
    return target


@pytest.mark.parametrize("fill", ["cut", "zeros", "noise"])
def test_batch_torn_at_any_byte_is_cut_and_the_ones_before_stay(tmp_path: Path, fill: str) -> None:
    log = open_log(tmp_path / "log", ONE_SEGMENT)
    for _ in range(3):
        append(log, 2)
    log.sync()
    append(log, 2)
    whole = log.size_bytes
    batch = append(log, 3, size_bytes=5)
    last = len(batch)
    log.close(clean=False)
    # A batch may end in zeros; with those the "torn" one would be complete.
    for kept in range(len(batch.rstrip(b"\0"))):
        directory = _copies(tmp_path / "log", tmp_path / "torn")
        with open(directory / FIRST, "r+b") as file:
            file.truncate(whole + kept)
            if fill != "cut":
                file.seek(whole + kept)
                rest = last - kept
                file.write(bytes(rest) if fill == "zeros" else bytes([0xA5]) * rest)
        log = open_log(directory, ONE_SEGMENT)
        assert (log.log_end_offset, log.synced_offset, log.size_bytes) == (8, 6, whole)
        assert os.path.getsize(directory / FIRST) == whole
        append(log, 1)
        assert [header.base_offset for header in read_all(log)] == [0, 2, 4, 6, 8]
        log.close(clean=False)


def test_zeros_after_whole_batches_are_cut(tmp_path: Path) -> None:
    log = open_log(tmp_path, ONE_SEGMENT)
    append(log, 2)
    size_bytes = log.size_bytes
    log.close(clean=False)
    with open(tmp_path / FIRST, "ab") as file:
        file.write(bytes(100_000))
    log = open_log(tmp_path, ONE_SEGMENT)
    assert (log.log_end_offset, log.size_bytes) == (2, size_bytes)
    assert os.path.getsize(tmp_path / FIRST) == size_bytes


def _flip(path: Path, position: int) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 0x04
    path.write_bytes(data)


def test_flipped_bit_after_the_sync_point_cuts_from_there(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log = open_log(tmp_path, ONE_SEGMENT)
    append(log, 2)
    log.sync()
    append(log, 2)
    position = log.size_bytes
    append(log, 2)
    append(log, 2)
    log.close(clean=False)
    _flip(tmp_path / FIRST, position + 70)
    log = open_log(tmp_path, ONE_SEGMENT)
    assert (log.log_end_offset, log.size_bytes) == (4, position)
    assert f"{tmp_path / FIRST}: cut" in caplog.text
    assert f"position {position}" in caplog.text


@pytest.mark.parametrize("clean", [True, False])
def test_flipped_bit_before_the_sync_point_is_kept_and_reported(
    tmp_path: Path, clean: bool, caplog: pytest.LogCaptureFixture
) -> None:
    log = open_log(tmp_path, ONE_SEGMENT)
    append(log, 2)
    position = log.size_bytes
    append(log, 2)
    append(log, 2)
    log.sync()
    append(log, 2)
    log.close(clean=clean)
    size_bytes = os.path.getsize(tmp_path / FIRST)
    _flip(tmp_path / FIRST, position + 70)
    log = open_log(tmp_path, ONE_SEGMENT, clean=clean)
    assert (log.log_end_offset, log.size_bytes) == (8, size_bytes)
    assert offsets(log.read(Offset(0), 9999, limit_offset=Offset(8))) == [0, 1]
    with pytest.raises(CorruptMessage, match=f"{FIRST} .* position {position}"):
        log.read(Offset(2), 9999, limit_offset=Offset(8))
    assert f"position {position}" in caplog.text
    assert offsets(log.read(Offset(4), 9999, limit_offset=Offset(8))) == [4, 5, 6, 7]
    append(log, 1)
    log.close(clean=False)
    assert open_log(tmp_path, ONE_SEGMENT).log_end_offset == 9


def test_file_that_ends_before_the_sync_point_is_kept_and_appends_continue_after_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log = open_log(tmp_path, ONE_SEGMENT)
    first = append(log, 2)
    append(log, 2)
    log.sync()
    log.close(clean=False)
    os.truncate(tmp_path / FIRST, len(first) + 30)
    log = open_log(tmp_path, ONE_SEGMENT)
    assert "before the sync point" in caplog.text
    assert log.log_end_offset == 4
    append(log, 2)
    assert offsets(log.read(Offset(0), 9999, limit_offset=Offset(6))) == [0, 1]
    with pytest.raises(CorruptMessage):
        log.read(Offset(2), 9999, limit_offset=Offset(6))


class CountingCalls(SystemCalls):
    """Counts the bytes read from segments and indexes."""

    def __init__(self) -> None:
        self.read_bytes = 0
        self._counted: set[int] = set()

    def open(self, path: str, *, create: bool) -> int:
        fd = super().open(path, create=create)
        self._counted.discard(fd)
        if path.endswith((".log", ".index")):
            self._counted.add(fd)
        return fd

    def pread(self, fd: int, size_bytes: int, position: int) -> bytes:
        data = super().pread(fd, size_bytes, position)
        if fd in self._counted:
            self.read_bytes += len(data)
        return data


def test_only_the_part_after_the_sync_point_is_read(tmp_path: Path) -> None:
    config = LogConfig(segment_bytes=100_000)
    log = open_log(tmp_path, config)
    for _ in range(50):
        append(log, 1, size_bytes=5000)
    log.sync()
    tail = len(append(log, 1)) + len(append(log, 1))
    log.close(clean=False)
    calls = CountingCalls()
    log = Log.open(tmp_path, config, OpenFiles(8, calls), clean=False)
    assert log.log_end_offset == 52
    assert calls.read_bytes == 2 * tail  # to be checked, and to be written again


def test_clean_open_reads_no_batch_and_no_index(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    for i in range(50):
        append(log, 2, epoch=i // 10)
    facts = log.segments
    log.close()
    calls = CountingCalls()
    files = OpenFiles(8, calls)
    log = Log.open(tmp_path, SMALL, files, clean=True)
    assert calls.read_bytes == 0
    assert len(files) == 0
    assert log.segments == facts
    assert (log.log_end_offset, log.synced_offset, log.needs_sync) == (100, 100, False)
    assert len(read_all(log)) == 50


def test_log_that_grew_after_a_clean_close_is_recovered_all_the_same(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    append(log, 1)
    log.close()
    log = open_log(tmp_path, clean=True)
    append(log, 1)
    log.close(clean=False)
    assert open_log(tmp_path, clean=True).log_end_offset == 2


def test_segments_after_a_torn_one_are_deleted(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    for _ in range(50):
        append(log, 1)
    facts = log.segments
    assert len(facts) > 3
    log.close(clean=False)
    torn = facts[1]
    os.truncate(tmp_path / f"{torn.base_offset:020d}.log", torn.size_bytes - 1)
    log = open_log(tmp_path)
    assert log.log_end_offset == facts[2].base_offset - 1
    assert len(list(tmp_path.glob("*.log"))) == 2
    for _ in range(30):
        append(log, 1)
    assert [header.base_offset for header in read_all(log)] == list(range(log.log_end_offset))


def test_rolled_segments_that_were_never_synced_are_found_again(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    append(log, 1, epoch=0, timestamp=0)
    log.sync()
    for i in range(30):
        append(log, 1, epoch=i, timestamp=i)
    facts = log.segments
    log.close(clean=False)
    log = open_log(tmp_path)
    # Recovery restarts the distance between index entries at the sync point.
    then, now = ([structs.replace(f, index_count=0) for f in x] for x in (facts, log.segments))
    assert now == then
    assert (log.log_end_offset, log.synced_offset) == (31, 1)
    assert log.epoch_at(Offset(30)) == 29
    assert log.find_by_timestamp(20) == (20, 21, 20)
    assert log.sync() == 31


def _lose_point(directory: Path) -> None:
    (directory / "sync-point").unlink()


def _tear_point(directory: Path) -> None:
    os.truncate(directory / "sync-point", 40)


def _damage_point(directory: Path) -> None:
    _flip(directory / "sync-point", 20)


def _lose_structure(directory: Path) -> None:
    (directory / "structure").unlink()


def _damage_structure(directory: Path) -> None:
    _flip(directory / "structure", 20)


def _lose_indexes(directory: Path) -> None:
    for path in directory.glob("*.index"):
        path.unlink()


def _leave_temporary(directory: Path) -> None:
    (directory / "structure.tmp").write_bytes(b"half")


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize(
    "harm",
    [
        _lose_point,
        _tear_point,
        _damage_point,
        _lose_structure,
        _damage_structure,
        _lose_indexes,
        _leave_temporary,
    ],
)
def test_small_files_lost_or_damaged_cost_no_record(
    tmp_path: Path, harm: Callable[[Path], None], clean: bool
) -> None:
    log = open_log(tmp_path)
    for i in range(30):
        append(log, 2, epoch=i // 10, timestamp=i)
    log.sync()
    append(log, 2, epoch=3, timestamp=100)
    facts = log.segments
    log.close(clean=clean)
    harm(tmp_path)
    log = open_log(tmp_path, clean=clean)
    assert [header.base_offset for header in read_all(log)] == list(range(0, 62, 2))
    assert [log.epoch_at(Offset(o)) for o in (0, 19, 20, 40, 60)] == [0, 0, 1, 2, 3]
    assert log.find_by_timestamp(25) == (25, 49, 2)
    assert log.max_timestamp() == (101, 61, 3)
    for facts_now, facts_then in zip(log.segments, facts, strict=True):
        assert facts_now.max_timestamp == facts_then.max_timestamp
    log.close()
    assert len(read_all(open_log(tmp_path, clean=True))) == 31


def test_missing_segment_in_the_middle_is_reported_and_the_others_serve(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log = open_log(tmp_path)
    for _ in range(30):
        append(log, 1)
    log.sync()
    facts = log.segments
    log.close(clean=False)
    (tmp_path / f"{facts[1].base_offset:020d}.log").unlink()
    log = open_log(tmp_path)
    assert "is missing" in caplog.text
    assert (log.log_start_offset, log.log_end_offset) == (0, 30)
    assert offsets(log.read(facts[2].base_offset, 1, limit_offset=Offset(30)))


def test_segments_deleted_just_before_a_crash_stay_deleted(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    for _ in range(30):
        append(log, 1)
    log.sync()
    facts = log.segments
    log.close(clean=False)
    (tmp_path / f"{facts[0].base_offset:020d}.log").unlink()
    log = open_log(tmp_path)
    assert log.log_start_offset == facts[1].base_offset
    assert len(read_all(log)) == 30 - facts[1].base_offset


def test_segment_that_outlived_its_deletion_is_removed(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    for _ in range(30):
        append(log, 1)
    saved = (tmp_path / FIRST).read_bytes()
    log.delete_before(Offset(20))
    assert not (tmp_path / FIRST).exists()
    log.close(clean=False)
    (tmp_path / FIRST).write_bytes(saved)
    log = open_log(tmp_path)
    assert log.log_start_offset == 20
    assert not (tmp_path / FIRST).exists()


def test_log_whose_segments_were_all_deleted_just_before_a_crash_continues_at_its_end(
    tmp_path: Path,
) -> None:
    log = open_log(tmp_path)
    for _ in range(30):
        append(log, 1)
    log.sync()
    log.close(clean=False)
    for path in tmp_path.glob("*.log"):
        path.unlink()
    log = open_log(tmp_path)
    assert (log.log_start_offset, log.log_end_offset) == (30, 30)
    append(log, 1)
    assert offsets(log.read(Offset(30), 1, limit_offset=Offset(31))) == [30]


def test_structure_ahead_of_the_sync_point_does_not_restore_a_lost_epoch(tmp_path: Path) -> None:
    log = open_log(tmp_path, ONE_SEGMENT)
    append(log, 2, epoch=0)
    log.sync()
    point, size_bytes = (tmp_path / SYNC_POINT_NAME).read_bytes(), log.size_bytes
    append(log, 2, epoch=1)
    log.sync()
    log.close(clean=False)
    (tmp_path / SYNC_POINT_NAME).write_bytes(point)
    os.truncate(tmp_path / FIRST, size_bytes)
    log = open_log(tmp_path, ONE_SEGMENT)
    assert (log.epoch_end(0), log.epoch_end(1)) == ((0, 2), (-1, -1))


def test_crash_in_the_middle_of_a_cut_leaves_a_readable_log(tmp_path: Path) -> None:
    calls = FailingCalls()
    log = Log.open(tmp_path, SMALL, OpenFiles(8, calls), clean=False)
    for _ in range(30):
        append(log, 1)
    log.sync()
    calls.failing = {"ftruncate"}
    with pytest.raises(StorageFailed):
        log.truncate_to(Offset(3))
    calls.failing = set()
    with pytest.raises(StorageFailed):
        append(log)
    log.close(clean=False)
    log = open_log(tmp_path)
    assert 3 <= log.log_end_offset < 30
    assert len(read_all(log)) == log.log_end_offset


def test_snapshots_after_the_recovered_end_are_deleted(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    append(log, 2)
    log.save_snapshot(Offset(2), b"good")
    append(log, 2)
    log.save_snapshot(Offset(4), b"of what gets torn")
    log.close(clean=False)
    os.truncate(tmp_path / FIRST, log.size_bytes - 1)
    log = open_log(tmp_path)
    append(log, 9)
    assert log.latest_snapshot(Offset(99)) == (2, b"good")


def test_damage_in_a_closed_segment_is_not_a_torn_tail_by_an_old_sync_point(tmp_path: Path) -> None:
    """A power cut may bring one back: it is written with every sync and never synced itself."""
    log = open_log(tmp_path)
    append(log, 2)
    log.sync()
    old_point = (tmp_path / SYNC_POINT_NAME).read_bytes()
    while len(log.segments) < 5:
        append(log, 2)
    log.sync()
    end, damaged = log.log_end_offset, log.segments[2].base_offset
    log.close(clean=False)
    (tmp_path / SYNC_POINT_NAME).write_bytes(old_point)
    file = tmp_path / f"{damaged:020d}.log"
    content = bytearray(file.read_bytes())
    content[HEADER_SIZE_BYTES + 3] ^= 1
    file.write_bytes(content)
    log = open_log(tmp_path)
    assert (log.log_end_offset, len(log.segments)) == (end, 5)
    with pytest.raises(CorruptMessage):
        log.read(damaged, 1000, limit_offset=end)


def test_segment_that_a_cut_removed_before_a_crash_is_not_reported_missing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log = open_log(tmp_path)
    while len(log.segments) < 4:
        append(log, 2)
    log.sync()
    structure = (tmp_path / STRUCTURE_NAME).read_bytes()
    cut_at = log.segments[1].base_offset
    log.truncate_to(cut_at)
    log.close(clean=False)
    (tmp_path / STRUCTURE_NAME).write_bytes(structure)
    with caplog.at_level(logging.WARNING):
        log = open_log(tmp_path)
    assert log.log_end_offset == cut_at
    assert not caplog.records


def test_clean_stop_is_not_trusted_with_an_old_sync_point(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    while len(log.segments) < 2:
        log.sync()
        old_point = (tmp_path / SYNC_POINT_NAME).read_bytes() if log.log_end_offset else b""
        append(log, 2)
    log.sync()
    end = log.log_end_offset
    log.close()
    (tmp_path / SYNC_POINT_NAME).write_bytes(old_point)
    log = open_log(tmp_path, clean=True)
    assert log.log_end_offset == end


def test_recovery_is_logged_through_the_storage_logger(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log = open_log(tmp_path)
    append(log, 2)
    log.close(clean=False)
    os.truncate(tmp_path / FIRST, 10)
    with caplog.at_level(logging.WARNING):
        open_log(tmp_path)
    assert {record.name for record in caplog.records} == {"kafkaesque.broker.storage"}


class _KeepNothing(Random):
    """A power cut loses everything that was not synced."""

    def randrange(self, *_: Any, **__: Any) -> int:
        return 0


def test_segment_found_on_a_full_disk_is_durable_with_its_name_after_a_sync() -> None:
    """The structure, whose saving syncs the directory, finds no room."""
    disk = SimulatedDisk(_KeepNothing(), lambda: 1000)
    log = Log.open("/data/log", SMALL, OpenFiles(8, disk), clean=False)
    append(log, 2)
    log.sync()
    while len(log.segments) == 1:
        append(log, 2)
    end_offset = log.log_end_offset
    log.close(clean=False)
    disk.faults.is_full = True
    log = Log.open("/data/log", SMALL, OpenFiles(8, disk), clean=False)
    assert log.log_end_offset == end_offset
    assert log.sync() == end_offset
    disk.crash()
    assert (
        Log.open("/data/log", SMALL, OpenFiles(8, disk), clean=False).log_end_offset == end_offset
    )


def test_data_that_a_dead_process_could_not_sync_is_rewritten() -> None:
    """A failed fsync leaves pages that look sound and clean, and that the disk never got."""
    disk = SimulatedDisk(_KeepNothing(), lambda: 1000)
    log = Log.open("/data/log", SMALL, OpenFiles(8, disk), clean=False)
    append(log, 2)
    log.sync()
    append(log, 2)
    disk.faults.sync_failures = 1
    with pytest.raises(StorageFailed):
        log.sync()
    disk.process_died()
    log = Log.open("/data/log", SMALL, OpenFiles(8, disk), clean=False)
    end_offset = log.sync()
    disk.crash()
    found = Log.open("/data/log", SMALL, OpenFiles(8, disk), clean=False)
    assert found.log_end_offset == end_offset


def test_sync_point_that_could_not_be_synced_is_rewritten_before_it_is_relied_on() -> None:
    disk = SimulatedDisk(_KeepNothing(), lambda: 1000)
    files = OpenFiles(8, disk)
    point = OpenFile("/data/log/" + SYNC_POINT_NAME)
    log = Log.open("/data/log", SMALL, files, clean=False)
    append(log, 2)
    log.sync()
    files.sync(point)
    append(log, 2)
    log.sync()
    disk.faults.sync_failures = 1
    with pytest.raises(OSError, match="Input/output error"):
        files.sync(point)
    Durability("/data/log", files, log.synced_offset).save_before_swap(LogStructure())
    inode = disk.inode_at(point.path)
    assert inode is not None
    assert inode.durable == inode.data
