"""The simulated disk: what a crash may lose, and what it may not."""

from __future__ import annotations

import errno
from random import Random

import pytest

from kafkaesque.broker.storage import durable_state
from kafkaesque.lab.sim.disk import PowerCut, SimulatedDisk

SEEDS = range(40)
PATH = "/data/file"


def new_disk(seed: int = 1) -> SimulatedDisk:
    disk = SimulatedDisk(Random(seed), lambda: 1000)
    disk.make_directories("/data")
    disk.sync_directory("/")
    return disk


def write(disk: SimulatedDisk, data: bytes, position: int = 0, path: str = PATH) -> int:
    fd = disk.open(path, create=True)
    disk.pwrite(fd, data, position)
    return fd


def content(disk: SimulatedDisk, path: str = PATH) -> bytes | None:
    if not disk.exists(path):
        return None
    return disk.pread(disk.open(path, create=False), 1 << 20, 0)


def test_synced_file_in_a_synced_directory_survives_every_crash() -> None:
    for seed in SEEDS:
        disk = new_disk(seed)
        disk.fdatasync(write(disk, b"kept"))
        disk.sync_directory("/data")
        write(disk, b"lost?", 4)
        disk.crash()
        found = content(disk)
        assert found is not None
        assert found[:4] == b"kept"


def test_unsynced_bytes_survive_in_part_in_whole_or_not_at_all() -> None:
    found = set()
    for seed in range(200):
        disk = new_disk(seed)
        fd = write(disk, b"")
        disk.fdatasync(fd)
        disk.sync_directory("/data")
        disk.pwrite(fd, b"x" * 10, 0)
        disk.crash()
        found.add(len(content(disk) or b""))
    assert {0, 10} < found <= set(range(11))


def test_pages_are_written_in_any_order_so_holes_are_zero() -> None:
    holes = 0
    for seed in range(100):
        disk = new_disk(seed)
        fd = write(disk, b"")
        disk.fdatasync(fd)
        disk.sync_directory("/data")
        disk.pwrite(fd, b"x" * 2048, 0)
        disk.crash()
        holes += b"\0x" in (content(disk) or b"")
    assert holes > 5


def test_name_is_lost_unless_its_directory_was_synced() -> None:
    found = set()
    for seed in SEEDS:
        disk = new_disk(seed)
        disk.fdatasync(write(disk, b"data"))
        disk.crash()
        found.add(content(disk))
    assert found == {None, b"data"}


def test_rename_happens_as_a_whole_or_not_at_all() -> None:
    found = set()
    for seed in SEEDS:
        disk = new_disk(seed)
        disk.fdatasync(write(disk, b"old"))
        disk.fdatasync(write(disk, b"new", path="/data/new"))
        disk.sync_directory("/data")
        disk.rename("/data/new", PATH)
        disk.crash()
        found.add((content(disk), content(disk, "/data/new")))
    assert found == {(b"old", b"new"), (b"new", None)}


def test_small_state_file_is_old_or_new_wherever_the_power_is_cut() -> None:
    found = set()
    for calls in range(12):
        for seed in range(10):
            disk = new_disk(seed)
            durable_state.save(PATH, b"old", disk)
            disk.faults.calls_to_power_cut = calls
            try:
                durable_state.save(PATH, b"new", disk)
                was_done = True
            except PowerCut:
                was_done = False
            disk.crash()
            found.add((was_done, durable_state.load(PATH, disk)))
    assert found == {(False, b"old"), (False, b"new"), (True, b"new")}


def test_unsynced_directory_is_lost_with_its_contents() -> None:
    found = set()
    for seed in SEEDS:
        disk = new_disk(seed)
        disk.make_directories("/data/sub/deep")
        disk.fdatasync(write(disk, b"data", path="/data/sub/deep/file"))
        disk.sync_directory("/data/sub/deep")
        disk.crash()
        found.add((disk.exists("/data/sub"), content(disk, "/data/sub/deep/file")))
    assert (False, None) in found
    assert (True, b"data") in found
    assert (False, b"data") not in found


def test_full_disk_rejects_growth_but_permits_overwrites() -> None:
    disk = new_disk()
    fd = write(disk, b"12345678")
    disk.faults.is_full = True
    with pytest.raises(OSError, match="No space") as caught:
        disk.pwrite(fd, b"abcd", 6)
    assert caught.value.errno == errno.ENOSPC
    disk.pwrite(fd, b"AB", 0)
    assert content(disk) == b"AB3456ab"


def test_after_a_failed_sync_the_next_one_succeeds_and_the_data_is_still_lost() -> None:
    lost = 0
    for seed in SEEDS:
        disk = new_disk(seed)
        fd = write(disk, b"")
        disk.fdatasync(fd)
        disk.sync_directory("/data")
        disk.pwrite(fd, b"data", 0)
        disk.faults.sync_failures = 1
        with pytest.raises(OSError, match="Input/output"):
            disk.fdatasync(fd)
        disk.fdatasync(fd)
        assert content(disk) == b"data"
        disk.crash()
        lost += content(disk) != b"data"
    assert lost > 5


def test_nothing_is_written_after_a_power_cut() -> None:
    disk = new_disk()
    fd = write(disk, b"1")
    disk.faults.calls_to_power_cut = 0
    with pytest.raises(PowerCut):
        disk.fdatasync(fd)
    with pytest.raises(PowerCut):
        disk.pwrite(fd, b"2", 1)
    with pytest.raises(PowerCut):
        disk.pread(fd, 1, 0)


def test_process_death_loses_only_descriptors() -> None:
    disk = new_disk()
    fd = write(disk, b"data")
    disk.process_died()
    assert content(disk) == b"data"
    with pytest.raises(KeyError):
        disk.pread(fd, 1, 0)


def test_durable_copy_has_only_what_would_survive() -> None:
    disk = new_disk()
    fd = write(disk, b"kept")
    disk.fdatasync(fd)
    disk.sync_directory("/data")
    disk.pwrite(fd, b"more", 4)
    write(disk, b"nameless", path="/data/other")
    copy = disk.durable_copy("/data")
    assert (content(copy), content(copy, "/data/other")) == (b"kept", None)
    assert content(disk) == b"keptmore"
