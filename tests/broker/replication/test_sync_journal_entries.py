"""A group whose log is synced in the sync journal: cut, folded, cleaned, replaced as a whole."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.broker.replication.entry_model import GROUP, START
from tests.broker.replication.sync_journal_rig import KeepNothing
from tests.broker.replication.test_entry_log import SMALL, Rig
from tests.broker.replication.test_entry_log_folding import copied, filled, fold, snapshot_end
from tests.broker.storage.batches import read_all
from tests.broker.storage.compacting import clean

from kafkaesque.broker.raft.types import LogIndex
from kafkaesque.broker.replication import staging
from kafkaesque.broker.replication.entry_log import EntryLog
from kafkaesque.broker.replication.raft_journal import RaftJournal
from kafkaesque.broker.replication.sync_journal import SyncJournal
from kafkaesque.broker.replication.sync_journal_recovery import recover_sync_journal
from kafkaesque.broker.storage.log import Log
from kafkaesque.broker.storage.open_files import OpenFiles
from kafkaesque.lab.sim.disk import PowerCut, SimulatedDisk
from kafkaesque.model.errors import InvariantBroken
from kafkaesque.model.ids import Offset


class JournaledRig(Rig):
    """The group is opened as a node does it."""

    def open(self, *, is_clean: bool) -> None:
        self.files = OpenFiles(8, self.calls)
        self.journal = RaftJournal.open(self.path / "raft", self.files)
        if self.journal.facts(GROUP) is None:
            self.journal.create(GROUP, START)
            self.journal.sync()
        recover_sync_journal(self.path / "raft", self.files, self.journal.starts())
        self.sync_journal = SyncJournal(self.path / "raft", self.files, logs_min=1)
        self.open_group(is_clean=is_clean)

    def open_group(self, *, is_clean: bool) -> None:
        directory = self.path / "log"
        staging.finish(str(directory), self.journal.facts(GROUP), self.files.calls)
        log = Log.open(directory, self.config, self.files, clean=is_clean)
        self.sync_journal.attach(GROUP, log)
        self.entries = EntryLog.open(GROUP, log, self.journal, is_clean=is_clean)
        self.journal.sync()

    def sync(self) -> None:
        log = self.entries.log
        share = log.share()
        assert share is not None
        assert self.sync_journal.write([share])
        log.note_durable(share)

    def kill(self) -> None:
        """The process dies and is started again."""
        self.files.close()
        self.open(is_clean=False)


# -- a log that takes the place of another -------------------------------------------------------


def follower_that_went_astray(path: Path) -> tuple[Rig, JournaledRig]:
    """It has more than the leader's cleaned part, all of it in the sync journal."""
    leader, rig = filled(path / "leader"), JournaledRig(path / "follower", SMALL)
    fold(leader, 4)
    rig.control(1)
    while rig.entries.next_offset < snapshot_end(leader) + 20:
        rig.batch(5)
    rig.sync()
    copied(leader.entries, rig)
    return leader, rig


def test_replacement_log_gets_nothing_from_the_replaced_log(tmp_path: Path) -> None:
    leader, rig = follower_that_went_astray(tmp_path)
    rig.entries.install(leader.entries.snapshot())
    rig.journal.sync()
    rig.kill()
    end_offset = snapshot_end(leader)
    assert rig.entries.next_offset == end_offset
    assert read_all(rig.entries.log) == [
        header for header in read_all(leader.entries.log) if header.base_offset < end_offset
    ]


def test_replacement_log_is_synced_in_the_journal_too(tmp_path: Path) -> None:
    leader, rig = follower_that_went_astray(tmp_path)
    rig.entries.install(leader.entries.snapshot())
    rig.control(5)
    rig.batch(3)
    rig.sync()
    assert rig.entries.log.synced_offset == rig.entries.next_offset
    assert rig.entries.log.file_synced_offset < rig.entries.next_offset
    rig.kill()
    assert rig.entries.next_offset == snapshot_end(leader) + 3


@pytest.mark.parametrize("step", ["cut", "swap"])
def test_crash_while_a_log_is_replaced(
    tmp_path: Path, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    leader, rig = follower_that_went_astray(tmp_path)
    snapshot = leader.entries.snapshot()

    def die(*_: object) -> None:
        raise PowerCut

    with monkeypatch.context() as patches:
        if step == "cut":
            patches.setattr(SyncJournal, "_write_cut", die)
        else:
            patches.setattr(staging, "swap", die)
        with pytest.raises(PowerCut):
            rig.entries.install(snapshot)
    rig.kill()
    assert (rig.entries.last_index, rig.entries.next_offset) == (
        snapshot.index,
        snapshot_end(leader),
    )


def test_replaced_log_whose_cut_was_not_recorded_is_voided_before_reopening(
    tmp_path: Path,
) -> None:
    """As a partition is reopened after a disk error."""
    leader, rig = follower_that_went_astray(tmp_path)
    rig.entries.log.close(clean=False)
    rig.sync_journal.void(GROUP)
    staging.swap(str(rig.path / "log"), rig.files.calls)
    rig.files.close()
    rig.files = OpenFiles(8)
    recover_sync_journal(rig.path / "raft", rig.files, rig.journal.starts())
    log = Log.open(rig.path / "log", SMALL, rig.files, clean=False)
    assert log.log_end_offset == snapshot_end(leader)


# -- cuts ------------------------------------------------------------------------------------------


def test_sync_of_the_raft_journal_during_a_cut_does_not_look_like_damage() -> None:
    """The flusher's threads continue while the event loop cuts a log."""
    disk = SimulatedDisk(KeepNothing(), lambda: 1000)
    rig = JournaledRig(Path("/data"), SMALL, disk)
    rig.control(1)
    rig.batch()
    rig.control(2)
    index = rig.entries.last_index
    rig.batch()
    rig.entries.log.sync()

    class Waiting:
        def attach(self, *_: object) -> None: ...

        def record_cut(self, *_: object) -> None:
            rig.journal.sync()
            raise PowerCut

        def record_closed(self, *_: object) -> None: ...

        def record_deleted(self, *_: object) -> None: ...

    rig.entries.log.attach_tail(GROUP, Waiting())
    with pytest.raises(PowerCut):
        rig.entries.truncate_from(index)
    rig.kill()
    assert rig.shape == "1:nb 2:nb"
    rig.entries.truncate_from(LogIndex(index))
    rig.journal.sync()
    disk.crash()
    rig.open(is_clean=False)
    assert rig.shape == "1:nb"


# -- folding and cleaning ---------------------------------------------------------------------------


def test_batches_that_only_the_journal_holds_are_not_folded(tmp_path: Path) -> None:
    rig = JournaledRig(tmp_path, SMALL)
    rig.control(1)
    for _ in range(12):
        rig.batch(2)
    rig.sync()
    base_offset = rig.entries.log.segments[-1].base_offset
    assert rig.entries.log.synced_offset > base_offset
    with pytest.raises(InvariantBroken, match="not durable"):
        rig.entries.fold_before(base_offset)


@pytest.mark.parametrize("lost", [(), ("sync-point", "structure")])
def test_gaps_made_by_the_cleaner_are_not_filled_from_the_journal(
    tmp_path: Path, lost: tuple[str, ...]
) -> None:
    rig = JournaledRig(tmp_path, SMALL)
    rig.control(1)
    for _ in range(12):
        rig.batch(2)
        rig.sync()
    log = rig.entries.log
    log.roll()
    log.sync()
    fold(rig, len(log.segments) - 1)
    clean(log)
    end_offset = rig.entries.next_offset
    rig.batch(3)
    rig.sync()
    expected = read_all(log)
    assert Offset(sum(header.record_count for header in expected)) < rig.entries.next_offset
    for name in lost:
        (tmp_path / "log" / name).unlink()
    rig.kill()
    assert read_all(rig.entries.log) == expected
    assert rig.entries.next_offset == end_offset + 3
