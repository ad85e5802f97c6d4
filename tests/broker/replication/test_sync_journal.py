from __future__ import annotations

import pytest
from tests.broker.replication.sync_journal_rig import JournalRig, headers

from kafkaesque.broker.storage.log import Log
from kafkaesque.model.errors import CorruptMessage, StorageFailed
from kafkaesque.model.ids import GroupId, Offset


def test_logs_that_never_synced_a_file_or_a_name_are_whole_after_a_power_cut() -> None:
    rig = JournalRig()
    written = {group: [rig.append(group), rig.append(group, 3)] for group in range(5)}
    assert rig.sync()
    assert [log.synced_offset for log in rig.logs.values()] == [4] * 5
    assert [log.file_synced_offset for log in rig.logs.values()] == [0] * 5
    rig.restart()
    for group, batches in written.items():
        assert rig.content(group) == headers(*batches)
        assert rig.logs[GroupId(group)].file_synced_offset == 4


def test_a_round_of_many_logs_costs_one_sync() -> None:
    rig = JournalRig()
    for group in range(20):
        rig.append(group)
    rig.sync()
    for group in range(20):
        rig.append(group)
    before = rig.disk.syncs
    rig.sync()
    assert rig.disk.syncs == before + 1


def test_batches_outside_of_a_round_are_not_durable() -> None:
    rig = JournalRig()
    kept = rig.append(0)
    rig.sync()
    rig.append(0)
    assert rig.logs[GroupId(0)].synced_offset == 1
    rig.restart()
    assert rig.content(0) == headers(kept)


def test_restored_segments_begin_at_the_same_offsets() -> None:
    rig = JournalRig(segment_bytes=300)
    written = []
    for number in range(12):
        written.append(rig.append(0, epoch=1 + number // 5))
        if number % 5 == 1:
            rig.sync()
    rig.sync()
    bases = [segment.base_offset for segment in rig.logs[GroupId(0)].segments]
    assert len(bases) > 2
    # With other settings than before the crash.
    rig.restart()
    log = rig.logs[GroupId(0)]
    assert [segment.base_offset for segment in log.segments] == bases
    assert rig.content(0) == headers(*written)
    assert [log.epoch_at(Offset(offset)) for offset in (0, 4, 5, 11)] == [1, 1, 2, 3]


def test_cut_batches_are_not_restored() -> None:
    rig = JournalRig()
    kept = rig.append(0)
    rig.append(0, 5)
    rig.append(0, 5)
    rig.sync()
    rig.logs[GroupId(0)].truncate_to(Offset(1))
    rig.restart()
    assert rig.content(0) == headers(kept)


def test_batches_appended_after_a_cut_are_restored() -> None:
    rig = JournalRig()
    kept = rig.append(0)
    rig.append(0, 5)
    rig.sync()
    rig.logs[GroupId(0)].truncate_to(Offset(1))
    other = rig.append(0, 2, epoch=2)
    rig.sync()
    rig.restart()
    assert rig.content(0) == headers(kept, other)


def test_log_that_was_emptied_begins_at_the_given_offset() -> None:
    rig = JournalRig()
    rig.append(0, 3)
    rig.sync()
    rig.logs[GroupId(0)].reset_to(Offset(50))
    batch = rig.append(0)
    rig.sync()
    rig.restart()
    log = rig.logs[GroupId(0)]
    assert (log.log_start_offset, log.log_end_offset) == (50, 51)
    assert list(log.headers_from(Offset(50))) == headers(batch)


def test_new_log_that_begins_late_is_restored_although_it_had_no_file() -> None:
    rig = JournalRig()
    rig.open(0).reset_to(Offset(50))
    rig.starts[GroupId(0)] = Offset(50)
    batch = rig.append(0)
    rig.sync()
    rig.restart()
    assert list(rig.logs[GroupId(0)].headers_from(Offset(50))) == headers(batch)


def test_log_that_lost_its_files_is_not_started_at_the_journals_first_batch() -> None:
    rig = JournalRig()
    rig.append(0, 3)
    rig.logs[GroupId(0)].sync()
    rig.append(0)
    rig.sync()
    rig.disk.remove_tree(rig.path(0))
    with pytest.raises(CorruptMessage, match="continues at 3"):
        rig.restart()


def test_log_that_begins_within_a_batch_has_no_gap_there() -> None:
    rig = JournalRig()
    written = [rig.append(0, 3), rig.append(0, 3)]
    log = rig.logs[GroupId(0)]
    log.sync()
    log.delete_before(Offset(1))
    written.append(rig.append(0))
    rig.sync()
    rig.restart()
    assert rig.content(0) == headers(*written)
    assert rig.logs[GroupId(0)].log_start_offset == 1


def test_deleted_log_leaves_nothing_to_its_replacement() -> None:
    rig = JournalRig()
    rig.append(0, 3)
    rig.append(1)
    rig.sync()
    rig.logs.pop(GroupId(0)).delete()
    rig.restart()
    assert rig.open(0).log_end_offset == 0


def test_log_of_a_group_that_left_is_not_created_again() -> None:
    rig = JournalRig()
    rig.append(0)
    rig.sync()
    rig.logs.clear()
    rig.disk.crash()
    rig.start(groups=[7])
    assert not rig.disk.exists(rig.path(0))
    assert rig.journal_files() == []


def test_running_round_leaves_out_batches_that_are_cut() -> None:
    rig = JournalRig()
    kept = rig.append(0)
    rig.sync()
    rig.append(0, 4)
    log = rig.logs[GroupId(0)]
    share = log.share()
    assert share is not None
    log.truncate_to(Offset(1))
    assert rig.journal.write([share])
    log.note_durable(share)
    assert log.synced_offset == 1
    rig.append(0, 4)
    log.note_durable(share)
    assert log.synced_offset == 1
    rig.restart()
    assert rig.content(0) == headers(kept)


def test_full_disk_sends_the_logs_to_their_own_files_until_there_is_room() -> None:
    rig = JournalRig()
    rig.append(0)
    rig.sync()
    batch = rig.append(0)
    rig.disk.faults.is_full = True
    assert not rig.sync()
    assert rig.logs[GroupId(0)].synced_offset == 1
    with pytest.raises(StorageFailed):
        rig.append(0)
    rig.disk.faults.is_full = False
    assert rig.sync()
    rig.restart()
    assert rig.content(0)[1:] == headers(batch)


def test_cut_that_cannot_be_recorded_does_not_happen() -> None:
    rig = JournalRig()
    rig.append(0)
    rig.append(0)
    rig.sync()
    rig.disk.faults.is_full = True
    with pytest.raises(StorageFailed):
        rig.logs[GroupId(0)].truncate_to(Offset(1))
    assert rig.logs[GroupId(0)].log_end_offset == 2


def test_full_file_is_removed_when_its_logs_are_synced() -> None:
    rig = JournalRig(file_bytes=400)
    while not rig.journal.has_closed_files:
        rig.append(0)
        rig.append(1)
        rig.sync()
    assert len(rig.journal_files()) == 2
    assert rig.journal.retire() == []
    assert len(rig.journal_files()) == 1
    assert rig.logs[GroupId(0)].file_synced_offset > 0
    ends = [log.synced_offset for log in rig.logs.values()]
    rig.restart()
    assert [log.log_end_offset for log in rig.logs.values()] == ends


def test_file_stays_while_a_log_in_it_cannot_be_synced() -> None:
    rig = JournalRig(file_bytes=400)
    while not rig.journal.has_closed_files:
        rig.append(0)
        rig.sync()
    rig.disk.faults.sync_failures = 1
    assert [lost.group for lost in rig.journal.retire()] == [0]
    assert len(rig.journal_files()) == 2


def test_two_full_files_are_enough() -> None:
    rig = JournalRig(file_bytes=400)
    while rig.journal.has_room(1):
        rig.append(0)
        rig.sync()
    assert len(rig.journal_files()) == 2
    rig.journal.retire()
    assert rig.journal.has_room(1)


def test_removal_of_a_file_is_durable() -> None:
    rig = JournalRig(file_bytes=400)
    while not rig.journal.has_closed_files:
        rig.append(0)
        rig.sync()
    first = rig.journal_files()[0]
    rig.journal.retire()
    rig.disk.crash()
    assert not rig.disk.exists(first)


def test_failed_log_gets_from_the_journal_what_its_file_may_lack() -> None:
    rig = JournalRig()
    written = [rig.append(0), rig.append(0)]
    rig.sync()
    log = rig.logs[GroupId(0)]
    rig.disk.faults.sync_failures = 1
    with pytest.raises(StorageFailed):
        log.sync()
    assert (log.file_synced_offset, log.synced_offset) == (0, 2)
    log.close(clean=False)
    reopened = Log.open(rig.path(0), rig.config, rig.files, clean=False)
    reopened.truncate_to(log.file_synced_offset)
    rig.journal.restore(GroupId(0), reopened, Offset(0))
    assert list(reopened.headers_from(Offset(0))) == headers(*written)


def test_clean_stop_leaves_no_file() -> None:
    rig = JournalRig()
    rig.append(0)
    rig.sync()
    for log in rig.logs.values():
        log.close(clean=True)
    rig.journal.close(clean=True)
    assert rig.journal_files() == []
    rig.restart()
    assert len(rig.content(0)) == 1


def test_torn_last_block_is_ignored_and_a_damaged_one_before_it_is_not() -> None:
    rig = JournalRig()
    kept = rig.append(0)
    rig.sync()
    (path,) = rig.journal_files()
    first_end = rig.disk.stat(path).size_bytes
    rig.append(0)
    rig.sync()
    inode = rig.disk.inode_at(path)
    assert inode is not None
    inode.flip_bit(first_end + 60, 3)
    rig.disk.crash()
    copy = bytes(inode.durable)
    rig.start()
    assert rig.content(0) == headers(kept)
    inode.durable[:] = copy
    inode.data[:] = copy
    inode.flip_bit(first_end + 60, 3)
    inode.flip_bit(first_end - 5, 3)
    fd = rig.disk.open(path, create=True)
    rig.disk.pwrite(fd, copy[: first_end - 5] + bytes([copy[first_end - 5] ^ 8]), 0)
    rig.disk.pwrite(fd, bytes(inode.durable[first_end:]), first_end)
    with pytest.raises(CorruptMessage, match="is damaged at position"):
        rig.start()
