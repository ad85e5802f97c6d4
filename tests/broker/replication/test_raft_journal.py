"""The journal of all groups: synced facts survive any crash, and damage is not hidden."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.broker.storage.failing import FailingCalls

from kafkaesque.broker.raft.types import FRESH, EntryKind, HardState, LogIndex, Membership, Term
from kafkaesque.broker.replication import raft_journal
from kafkaesque.broker.replication.raft_journal import (
    ControlEntry,
    GroupFacts,
    LogStart,
    RaftJournal,
)
from kafkaesque.broker.replication.rules.journal_records import Closing
from kafkaesque.broker.storage.open_files import OpenFiles, SystemCalls
from kafkaesque.lab.sim.disk import PowerCut, SimulatedDisk
from kafkaesque.model.errors import CorruptMessage, InvariantBroken, StorageFailed
from kafkaesque.model.ids import GroupId, MemberId, Offset

GROUP = GroupId(16)
OTHER = GroupId(17)
MEMBERS = Membership((MemberId(0), MemberId(1), MemberId(2)))
START = LogStart(LogIndex(0), Term(0), Offset(0), MEMBERS)


def control(index: int, term: int = 1, offset: int = 0) -> ControlEntry:
    return ControlEntry(LogIndex(index), Term(term), EntryKind.NOOP, Offset(offset), None)


def vote(term: int, member: int | None = None) -> HardState:
    return HardState(Term(term), None if member is None else MemberId(member))


def facts_of(journal: RaftJournal, group: GroupId = GROUP) -> GroupFacts:
    facts = journal.facts(group)
    assert facts is not None
    return facts


def all_facts(journal: RaftJournal) -> dict[GroupId, tuple[object, ...]]:
    """All facts in the journal, as values."""
    found = {}
    for group in journal.groups():
        facts = facts_of(journal, group)
        found[group] = (
            *(facts.hard_state, facts.start, tuple(facts.control)),
            *(facts.commit_index, facts.is_resetting, facts.closing),
        )
    return found


def reopened(directory: Path) -> RaftJournal:
    return RaftJournal.open(directory, OpenFiles(4))


def test_everything_synced_is_there_after_reopening(tmp_path: Path) -> None:
    journal = reopened(tmp_path / "raft")
    journal.create(GROUP, START)
    journal.create(OTHER, START)
    journal.save_hard_state(GROUP, vote(3, 2))
    learners = Membership((MemberId(0),), (MemberId(5),))
    entries = [
        control(1, 3),
        ControlEntry(LogIndex(2), Term(3), EntryKind.MEMBERSHIP, Offset(0), learners),
        ControlEntry(LogIndex(9), Term(3), EntryKind.DATA, Offset(60), b"trim"),
    ]
    for entry in entries:
        journal.save_control(GROUP, entry)
    journal.save_commit(GROUP, LogIndex(7))
    journal.sync()
    journal = reopened(tmp_path / "raft")
    facts = facts_of(journal)
    assert journal.groups() == [GROUP, OTHER]
    assert (facts.hard_state, facts.start, facts.commit_index) == (vote(3, 2), START, 7)
    assert facts.control == entries
    assert facts_of(journal, OTHER).hard_state == FRESH
    assert journal.facts(GroupId(99)) is None


def test_unsynced_records_are_lost(tmp_path: Path) -> None:
    journal = reopened(tmp_path)
    journal.create(GROUP, START)
    journal.sync()
    journal.save_hard_state(GROUP, vote(4))
    journal.close(clean=False)
    assert facts_of(reopened(tmp_path)).hard_state == FRESH


def test_clean_close_writes_hints_that_no_record_carried(tmp_path: Path) -> None:
    journal = reopened(tmp_path)
    journal.create(GROUP, START)
    journal.sync()
    journal.save_commit(GROUP, LogIndex(5))
    assert not journal.needs_sync
    journal.close()
    assert facts_of(reopened(tmp_path)).commit_index == 5


def test_positions_cover_what_was_saved_before_the_sync(tmp_path: Path) -> None:
    journal = reopened(tmp_path)
    assert journal.position == journal.synced_position == 0
    journal.create(GROUP, START)
    first = journal.position
    assert journal.needs_sync
    assert journal.sync() == journal.synced_position >= first
    journal.save_hard_state(GROUP, vote(1))
    assert journal.synced_position < journal.position


def test_cut_drops_control_entries_from_the_index_on(tmp_path: Path) -> None:
    journal = reopened(tmp_path)
    journal.create(GROUP, START)
    for index in (1, 2, 5, 9):
        journal.save_control(GROUP, control(index))
    journal.cut_from(GROUP, LogIndex(5))
    before = journal.position
    journal.cut_from(GROUP, LogIndex(3))
    assert journal.position == before, "nothing to cut is nothing to write"
    journal.save_control(GROUP, control(5, 2))
    journal.sync()
    assert facts_of(reopened(tmp_path)).control == [control(1), control(2), control(5, 2)]


def test_control_entry_at_an_index_that_is_taken_is_refused(tmp_path: Path) -> None:
    journal = reopened(tmp_path)
    journal.create(GROUP, START)
    journal.save_control(GROUP, control(4))
    with pytest.raises(InvariantBroken, match="entry 4"):
        journal.save_control(GROUP, control(4, 2))


def test_moved_start_drops_the_control_entries_it_passes(tmp_path: Path) -> None:
    journal = reopened(tmp_path)
    journal.create(GROUP, START)
    for index in (1, 4, 5):
        journal.save_control(GROUP, control(index))
    start = LogStart(LogIndex(4), Term(1), Offset(70), MEMBERS)
    journal.move_start(GROUP, start)
    journal.sync()
    facts = facts_of(reopened(tmp_path))
    assert (facts.start, facts.control) == (start, [control(5)])


def test_reset_keeps_the_vote_and_is_pending_until_done(tmp_path: Path) -> None:
    journal = reopened(tmp_path)
    journal.create(GROUP, START)
    journal.save_hard_state(GROUP, vote(6, 1))
    journal.save_control(GROUP, control(90))
    start = LogStart(LogIndex(50), Term(5), Offset(700), MEMBERS)
    journal.reset(GROUP, start, is_pending=True)
    journal.sync()
    facts = facts_of(reopened(tmp_path))
    assert (facts.start, facts.control, facts.hard_state) == (start, [], vote(6, 1))
    assert facts.is_resetting
    journal.reset_done(GROUP)
    journal.sync()
    assert not facts_of(reopened(tmp_path)).is_resetting


def test_closing_is_void_as_soon_as_another_fact_is_saved(tmp_path: Path) -> None:
    journal = reopened(tmp_path)
    for group in (GROUP, OTHER):
        journal.create(group, START)
        journal.save_closing(group, Closing(LogIndex(8), Offset(80)))
    journal.save_hard_state(OTHER, vote(2))
    journal.close()
    journal = reopened(tmp_path)
    assert journal.take_closing(GROUP) == (8, 80)
    assert journal.take_closing(GROUP) is None
    assert journal.take_closing(OTHER) is None


def test_forgotten_group_may_come_back_as_a_new_one(tmp_path: Path) -> None:
    journal = reopened(tmp_path)
    journal.create(GROUP, START)
    journal.save_hard_state(GROUP, vote(3))
    with pytest.raises(InvariantBroken, match="already"):
        journal.create(GROUP, START)
    journal.save_commit(GROUP, LogIndex(1))
    journal.forget(GROUP)
    journal.sync()
    journal = reopened(tmp_path)
    assert journal.groups() == []
    journal.create(GROUP, START)
    assert facts_of(journal).hard_state == FRESH


def test_thousand_elections_at_once_share_one_sync() -> None:
    disk = SimulatedDisk(Random(1), lambda: 0)
    journal = RaftJournal.open("/data/raft", OpenFiles(4, disk))
    for number in range(1000):
        journal.create(GroupId(number), START)
    journal.sync()
    before = disk.syncs
    for number in range(1000):
        journal.save_hard_state(GroupId(number), vote(2, 1))
        journal.save_control(GroupId(number), control(1, 2))
    journal.sync()
    assert disk.syncs == before + 1


def grown(directory: Path, files: OpenFiles) -> RaftJournal:
    """A journal whose next sync makes a checkpoint."""
    journal = RaftJournal.open(directory, files, first_checkpoint_bytes=2000)
    journal.create(GROUP, START)
    journal.save_control(GROUP, control(1))
    for term in range(300):
        journal.save_hard_state(GROUP, vote(term))
    journal.sync()
    return journal


def test_file_that_outgrew_its_facts_is_replaced(tmp_path: Path) -> None:
    journal = grown(tmp_path, OpenFiles(4))
    path = tmp_path / raft_journal.FILE_NAME
    size_bytes = path.stat().st_size
    position = journal.position
    journal.save_hard_state(GROUP, vote(999, 1))
    assert journal.sync() == journal.position > position
    assert path.stat().st_size < size_bytes // 10
    journal.save_control(GROUP, control(2))
    journal.sync()
    before = all_facts(journal)
    journal.close(clean=False)
    assert os.listdir(tmp_path) == [raft_journal.FILE_NAME]
    assert all_facts(reopened(tmp_path)) == before


def test_full_disk_at_a_checkpoint_leaves_the_old_file_in_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    journal = grown(tmp_path, OpenFiles(4))

    def refuse(content: bytes) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(RaftJournal, "_replace_file", lambda self, content: refuse(content))
    journal.save_hard_state(GROUP, vote(999))
    journal.sync()
    monkeypatch.undo()
    assert "No space left" in caplog.text
    assert facts_of(reopened(tmp_path)).hard_state == vote(999)


def test_saves_while_another_thread_makes_checkpoints_are_not_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(raft_journal, "_CHECKPOINT_SIZE_BYTES_MIN", 500)
    journal = RaftJournal.open(tmp_path, OpenFiles(4), first_checkpoint_bytes=500)
    for number in range(10):
        journal.create(GroupId(number), START)
    stop = threading.Event()

    def keep_syncing() -> None:
        while not stop.is_set():
            journal.sync()

    thread = threading.Thread(target=keep_syncing)
    thread.start()
    for index in range(1, 400):
        journal.save_control(GroupId(index % 10), control(index))
        journal.save_hard_state(GroupId(index % 10), vote(index))
    stop.set()
    thread.join()
    journal.sync()
    before = all_facts(journal)
    assert all_facts(reopened(tmp_path)) == before


def test_refused_write_is_repeated_by_the_next_sync(tmp_path: Path) -> None:
    calls = FailingCalls()
    journal = RaftJournal.open(tmp_path, OpenFiles(4, calls))
    journal.create(GROUP, START)
    calls.failing.add("pwrite")
    with pytest.raises(StorageFailed, match=f"cannot write .*{raft_journal.FILE_NAME}"):
        journal.sync()
    assert journal.synced_position == 0
    journal.save_hard_state(GROUP, vote(2))
    calls.failing.clear()
    assert journal.sync() == journal.position
    assert facts_of(reopened(tmp_path)).hard_state == vote(2)


class LittleRoom(SystemCalls):
    """Writes half of the data, then nothing, while there is no `room`."""

    room = True

    def pwrite(self, fd: int, data: bytes | bytearray | memoryview, position: int) -> int:
        if self.room:
            return super().pwrite(fd, data, position)
        if isinstance(data, memoryview):
            raise OSError(28, "No space left on device")
        return super().pwrite(fd, data[: len(data) // 2], position)


def test_facts_are_saved_after_a_short_write_even_if_its_error_is_kept(
    tmp_path: Path,
) -> None:
    """The error's frames hold a view of the bytes to write (found with three brokers on one full
    disk)."""
    calls = LittleRoom()
    journal = RaftJournal.open(tmp_path, OpenFiles(8, calls))
    journal.create(GROUP, START)
    calls.room = False
    with pytest.raises(StorageFailed) as kept:
        journal.sync()
    journal.save_hard_state(GROUP, vote(3, 1))
    with pytest.raises(StorageFailed) as kept_too:
        journal.sync()
    journal.save_hard_state(GROUP, vote(4, 2))
    calls.room = True
    assert journal.sync() == journal.position
    assert facts_of(reopened(tmp_path)).hard_state == vote(4, 2)
    assert kept.value is not kept_too.value


def test_failed_fsync_is_final(tmp_path: Path) -> None:
    calls = FailingCalls()
    journal = RaftJournal.open(tmp_path, OpenFiles(4, calls))
    journal.create(GROUP, START)
    calls.failing.add("fdatasync")
    with pytest.raises(StorageFailed, match="fsync"):
        journal.sync()
    calls.failing.clear()
    with pytest.raises(StorageFailed, match="no longer accepts writes"):
        journal.sync()
    assert journal.synced_position == 0


def test_data_that_a_dead_process_could_not_sync_is_rewritten() -> None:
    """A failed fsync leaves pages that look sound and clean, and that the disk never got."""
    disk = SimulatedDisk(Random(0), lambda: 1000)
    journal = RaftJournal.open("/data/raft", OpenFiles(4, disk))
    journal.create(GROUP, START)
    journal.sync()
    journal.save_hard_state(GROUP, vote(2, 1))
    disk.faults.sync_failures = 1
    with pytest.raises(StorageFailed):
        journal.sync()
    disk.process_died()
    found = all_facts(RaftJournal.open("/data/raft", OpenFiles(4, disk)))
    disk.crash()
    assert all_facts(RaftJournal.open("/data/raft", OpenFiles(4, disk))) == found


def test_rename_that_a_dead_process_did_not_sync_is_durable_once_the_journal_is_open(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    disk = SimulatedDisk(Random(0), lambda: 1000)
    size_bytes = raft_journal.HEADER_SIZE_BYTES
    journal = RaftJournal.open("/data/raft", OpenFiles(4, disk), first_checkpoint_bytes=size_bytes)
    journal.create(GROUP, START)
    journal.sync()
    journal.save_hard_state(GROUP, vote(2, 1))
    with monkeypatch.context() as context:
        context.setattr(disk, "sync_directory", _dies)
        with pytest.raises(PowerCut):
            journal.sync()
    disk.process_died()
    RaftJournal.open("/data/raft", OpenFiles(4, disk))
    assert disk.is_name_durable("/data/raft/raft.journal")


def _dies(path: str) -> None:
    raise PowerCut


def journal_with_tail(directory: Path) -> tuple[Path, int]:
    """Its file, and the position after which nothing is marked durable."""
    journal = reopened(directory)
    journal.create(GROUP, START)
    journal.save_hard_state(GROUP, vote(1))
    journal.sync()
    path = directory / raft_journal.FILE_NAME
    synced = path.read_bytes()
    journal.save_hard_state(GROUP, vote(2))
    journal.sync()
    journal.close(clean=False)
    path.write_bytes(synced + path.read_bytes()[len(synced) :])
    return path, len(synced)


def test_tail_torn_at_any_byte_is_cut(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path, synced = journal_with_tail(tmp_path)
    whole = path.read_bytes()
    for end in range(synced, len(whole)):
        for fill in (b"", bytes(len(whole) - end), b"\xa5" * (len(whole) - end)):
            path.write_bytes(whole[:end] + fill)
            journal = reopened(tmp_path)
            assert facts_of(journal).hard_state == vote(1)
            assert path.stat().st_size == synced
            journal.save_hard_state(GROUP, vote(7))
            journal.sync()
            assert facts_of(reopened(tmp_path)).hard_state == vote(7)
    assert f"torn tail at position {synced}" in caplog.text


def test_damage_before_the_mark_is_reported_and_nothing_is_cut(tmp_path: Path) -> None:
    path, synced = journal_with_tail(tmp_path)
    whole = path.read_bytes()
    for position in range(raft_journal.HEADER_SIZE_BYTES, synced):
        data = bytearray(whole)
        data[position] ^= 0x10
        path.write_bytes(data)
        with pytest.raises(CorruptMessage, match=f"{path} is damaged at position"):
            reopened(tmp_path)
        assert path.read_bytes() == data
    path.write_bytes(whole[: synced - 1])
    with pytest.raises(CorruptMessage, match="damaged at position"):
        reopened(tmp_path)


def test_damaged_header_is_rewritten_if_all_records_are_intact(tmp_path: Path) -> None:
    path, synced = journal_with_tail(tmp_path)
    data = bytearray(path.read_bytes())
    data[6] ^= 1
    path.write_bytes(data[:-1])
    with pytest.raises(CorruptMessage, match=f"position {synced}"):
        reopened(tmp_path)
    path.write_bytes(data)
    assert facts_of(reopened(tmp_path)).hard_state == vote(2)
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(CorruptMessage, match=f"position {synced}"):
        reopened(tmp_path)


def test_file_of_something_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / raft_journal.FILE_NAME).write_bytes(b"")
    with pytest.raises(CorruptMessage, match="not a raft journal"):
        reopened(tmp_path)


@settings(deadline=None, max_examples=200)
@given(seed=st.integers(0, 2**32))
def test_crash_at_any_moment_leaves_what_was_synced_and_a_prefix_of_the_rest(seed: int) -> None:
    random = Random(seed)
    disk = SimulatedDisk(random, lambda: 0)
    journal = RaftJournal.open("/data/raft", OpenFiles(4, disk), first_checkpoint_bytes=300)
    history = [all_facts(journal)]
    synced = 0
    disk.faults.calls_to_power_cut = random.randrange(40)
    try:
        while True:
            step(journal, random)
            history.append(all_facts(journal))
            if random.random() < 0.3:
                journal.sync()
                synced = len(history) - 1
                journal._checkpoint_due_bytes = 300
    except PowerCut:
        pass
    disk.crash()
    found = all_facts(RaftJournal.open("/data/raft", OpenFiles(4, disk)))
    assert found in history[synced:]


def step(journal: RaftJournal, random: Random) -> None:
    """Make one valid change, chosen at random."""
    group = GroupId(random.randrange(3))
    facts = journal.facts(group)
    if facts is None:
        journal.create(group, START)
        return
    last = facts.control[-1].index if facts.control else facts.start.index
    index = LogIndex(random.randrange(facts.start.index + 1, last + 2))
    start = LogStart(index, Term(1), Offset(int(index)), MEMBERS)
    match random.randrange(8):
        case 0 | 1 | 2:
            journal.save_control(group, control(last + random.randrange(1, 4)))
        case 3:
            journal.cut_from(group, index)
        case 4:
            journal.move_start(group, start)
        case 5:
            journal.reset(group, start, is_pending=random.random() < 0.5)
        case 6:
            journal.forget(group)
        case _:
            journal.save_hard_state(group, vote(random.randrange(100), random.randrange(3)))
