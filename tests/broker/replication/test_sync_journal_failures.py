"""The sync journal with disk errors, logs that are opened and closed, and stops that are not clean."""

from __future__ import annotations

import pytest
from tests.broker.replication.sync_journal_rig import JournalRig, headers

from kafkaesque.broker.replication.rules.sync_journal_records import FILE_HEADER_SIZE_BYTES
from kafkaesque.broker.storage.log import Log
from kafkaesque.model.errors import CorruptMessage, StorageFailed
from kafkaesque.model.ids import GroupId, Offset

FILE_BYTES = 400


def filled(rig: JournalRig, *groups: int) -> None:
    """Run rounds until a file is full and the next one is begun."""
    while not rig.journal.has_closed_files:
        for group in groups:
            rig.append(group)
        rig.sync(*groups)


# -- a sync that fails ---------------------------------------------------------------------------


def test_failed_sync_makes_the_logs_sync_their_own_files_and_is_not_retried() -> None:
    rig = JournalRig()
    written = [rig.append(0)]
    rig.sync()
    written.append(rig.append(0))
    rig.disk.faults.sync_failures = 1
    assert not rig.sync()
    log = rig.logs[GroupId(0)]
    assert (log.synced_offset, log.failure) == (1, None)
    log.sync()
    other = rig.append(1)
    assert rig.sync(1)
    assert len(rig.journal_files()) == 2
    rig.restart()
    assert rig.content(0) == headers(*written)
    assert rig.content(1) == headers(other)


def test_batches_cut_after_a_failed_sync_are_not_restored() -> None:
    """After a failed sync the disk may have none, some or all of the data."""
    rig = JournalRig()
    kept = rig.append(0)
    rig.sync()
    rig.append(0, 3)
    rig.disk.faults.sync_failures = 1
    rig.sync()
    log = rig.logs[GroupId(0)]
    log.sync()
    (path,) = rig.journal_files()
    log.truncate_to(Offset(1))
    inode = rig.disk.inode_at(path)
    assert inode is not None
    inode.durable[:] = inode.data
    rig.restart()
    assert rig.content(0) == headers(kept)


def test_syncs_that_fail_again_and_again_leave_two_files_at_most() -> None:
    rig = JournalRig()
    for _ in range(2):
        rig.append(0)
        rig.sync()
        rig.append(0)
        rig.disk.faults.sync_failures = 1
        assert not rig.sync()
        rig.logs[GroupId(0)].sync()
    assert len(rig.journal_files()) == 2
    assert not rig.journal.has_room(1)
    rig.journal.retire()
    assert rig.journal.has_room(1)
    assert rig.journal_files() == []


# -- logs that are closed --------------------------------------------------------------------------


def test_round_that_took_its_bytes_before_the_log_was_closed_leaves_it_out() -> None:
    rig = JournalRig()
    kept = rig.append(0)
    rig.sync()
    rig.append(0, 4)
    share = rig.logs[GroupId(0)].share()
    assert share is not None
    rig.logs[GroupId(0)].close(clean=False)
    rig.open(0).truncate_to(Offset(1))
    other = rig.append(0, 2, epoch=2)
    rig.sync()
    assert rig.journal.write([share])
    rig.restart()
    assert rig.content(0) == headers(kept, other)


def test_round_of_a_closed_log_unknown_to_the_journal_does_no_harm() -> None:
    rig = JournalRig()
    rig.append(0)
    batch = rig.append(1)
    shares = [log.share() for log in rig.logs.values()]
    rig.logs.pop(GroupId(0)).close(clean=False)
    assert rig.journal.write([share for share in shares if share is not None])
    rig.restart()
    assert rig.content(1) == headers(batch)


def test_file_is_removed_although_a_log_in_it_was_closed_for_good() -> None:
    rig = JournalRig(file_bytes=FILE_BYTES)
    filled(rig, 0, 1)
    rig.logs.pop(GroupId(0)).close(clean=True)
    assert rig.journal.retire() == []
    assert len(rig.journal_files()) == 1


def test_file_stays_for_a_log_that_was_closed_before_it_was_synced() -> None:
    rig = JournalRig(file_bytes=FILE_BYTES)
    filled(rig, 0, 1)
    rig.logs[GroupId(0)].close(clean=False)
    assert rig.journal.retire() == []
    assert len(rig.journal_files()) == 2
    rig.open(0)
    assert rig.journal.retire() == []
    assert len(rig.journal_files()) == 1


def test_clean_stop_keeps_what_a_failed_log_has_nowhere_else() -> None:
    rig = JournalRig()
    written = [rig.append(0), rig.append(0)]
    rig.sync()
    log = rig.logs[GroupId(0)]
    rig.disk.faults.sync_failures = 1
    with pytest.raises(StorageFailed):
        log.sync()
    log.close(clean=True)
    rig.journal.close(clean=True)
    rig.restart()
    assert rig.content(0) == headers(*written)


# -- a full disk -----------------------------------------------------------------------------------


def test_log_can_be_deleted_from_a_full_disk_and_its_replacement_starts_empty() -> None:
    rig = JournalRig()
    rig.append(0, 3)
    rig.append(1)
    rig.sync()
    rig.disk.faults.is_full = True
    rig.logs.pop(GroupId(0)).delete()
    assert not rig.disk.exists(rig.path(0))
    rig.disk.faults.is_full = False
    batch = rig.append(0)
    rig.sync()
    rig.restart()
    assert rig.content(0) == headers(batch)


def test_file_is_removed_although_a_log_in_it_was_deleted_from_a_full_disk() -> None:
    rig = JournalRig(file_bytes=FILE_BYTES)
    filled(rig, 0, 1)
    rig.disk.faults.is_full = True
    rig.logs.pop(GroupId(0)).delete()
    rig.disk.faults.is_full = False
    rig.journal.retire()
    assert len(rig.journal_files()) == 1


def test_replacement_of_a_deleted_log_waits_until_the_deletion_is_recorded() -> None:
    rig = JournalRig()
    rig.append(0, 3)
    rig.sync()
    rig.disk.faults.is_full = True
    rig.logs.pop(GroupId(0)).delete()
    with pytest.raises(StorageFailed):
        rig.open(0)
    rig.disk.faults.is_full = False
    assert rig.open(0).log_end_offset == 0
    rig.restart()
    assert rig.open(0).log_end_offset == 0


# -- bounds ----------------------------------------------------------------------------------------


def test_file_does_not_grow_beyond_its_bound_by_a_large_round() -> None:
    rig = JournalRig(file_bytes=2_000)
    rig.append(0, size_bytes=1_000)
    rig.sync()
    rig.append(0, size_bytes=1_500)
    rig.sync()
    sizes = [rig.disk.stat(path).size_bytes for path in rig.journal_files()]
    assert len(sizes) == 2
    assert max(sizes) < 2_000
    assert not rig.journal.has_room(1_000)
    assert rig.journal.has_room(100)


def test_round_that_is_larger_than_a_file_has_no_room() -> None:
    rig = JournalRig(file_bytes=2_000)
    assert rig.journal.has_room(2_000)
    assert not rig.journal.has_room(2_001)


# -- damage ----------------------------------------------------------------------------------------


def test_damaged_header_of_a_file_with_blocks_is_reported() -> None:
    rig = JournalRig()
    rig.append(0)
    rig.sync()
    (path,) = rig.journal_files()
    inode = rig.disk.inode_at(path)
    assert inode is not None
    inode.flip_bit(6, 1)
    rig.disk.crash()
    with pytest.raises(CorruptMessage, match="is damaged at position 0"):
        rig.start()


@pytest.mark.parametrize("kept_bytes", [0, 5, FILE_HEADER_SIZE_BYTES])
def test_file_without_blocks_may_be_torn(kept_bytes: int) -> None:
    rig = JournalRig()
    rig.append(0)
    rig.sync()
    (path,) = rig.journal_files()
    inode = rig.disk.inode_at(path)
    assert inode is not None
    del inode.durable[kept_bytes:]
    rig.disk.crash()
    inode.data[:] = inode.durable
    rig.start()
    assert rig.journal_files() == []


def test_journal_that_cannot_be_read_is_a_failure_of_the_disk() -> None:
    rig = JournalRig()
    rig.append(0)
    rig.sync()
    rig.logs[GroupId(0)].close(clean=False)
    (path,) = rig.journal_files()
    rig.files.close()
    rig.disk.unlink(path)
    log = Log.open(rig.path(0), rig.config, rig.files, clean=False)
    log.truncate_to(Offset(0))
    with pytest.raises(StorageFailed):
        rig.journal.restore(GroupId(0), log, Offset(0))
