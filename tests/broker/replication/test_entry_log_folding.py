"""Batches that are no longer entries: folded, cleaned, skipped when counting, copied to a peer."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.broker.replication.entry_model import GROUP
from tests.broker.replication.test_entry_log import Rig
from tests.broker.storage.batches import read_all
from tests.broker.storage.compacting import clean

from kafkaesque.broker.raft.types import LogIndex
from kafkaesque.broker.replication import staging
from kafkaesque.broker.replication.entry_log import EntryLog, kept_range
from kafkaesque.broker.storage.config import LogConfig
from kafkaesque.model.errors import CorruptMessage, InvariantBroken
from kafkaesque.model.ids import Offset

SMALL = LogConfig(segment_bytes=400, retention_ms=-1)


def filled(path: Path) -> Rig:
    rig = Rig(path, SMALL)
    rig.control(1)
    for _ in range(12):
        rig.batch(2)
    rig.control(2)
    for _ in range(6):
        rig.batch()
    rig.entries.log.sync()
    return rig


def fold(rig: Rig, number: int) -> Offset:
    """Everything before segment `number`."""
    offset = rig.entries.log.segments[number].base_offset
    rig.entries.fold_before(offset)
    rig.journal.sync()
    return offset


@pytest.mark.parametrize("clean_stop", [True, False])
def test_entries_after_the_fold_keep_their_indexes(tmp_path: Path, clean_stop: bool) -> None:
    rig = filled(tmp_path)
    before = {entry.index: (entry.term, entry.payload) for entry in rig.all()}
    headers = read_all(rig.entries.log)
    offset = fold(rig, 3)
    for _ in range(2):
        kept = {entry.index: (entry.term, entry.payload) for entry in rig.all()}
        assert kept == {index: before[index] for index in kept}
        assert min(kept) == rig.entries.first_index > 1
        assert read_all(rig.entries.log) == headers
        assert rig.entries.folded_offset == offset
        rig.reopen(clean=clean_stop)


@pytest.mark.parametrize("clean_stop", [True, False])
def test_cleaned_part_is_not_counted(tmp_path: Path, clean_stop: bool) -> None:
    rig = filled(tmp_path)
    rig.entries.log.roll()
    rig.entries.log.sync()
    last_index, end_offset = rig.entries.last_index, rig.entries.next_offset
    fold(rig, len(rig.entries.log.segments) - 1)
    clean(rig.entries.log)
    rig.reopen(clean=clean_stop)
    assert (rig.entries.last_index, rig.entries.next_offset) == (last_index, end_offset)
    rig.control(3)
    ref = rig.batch(3)
    assert ref.base_offset == end_offset
    rig.entries.log.sync()
    rig.reopen(clean=clean_stop)
    assert rig.entries.index_at(end_offset) == last_index + 2
    assert rig.shape == "3: nb" or rig.shape == "3:nb"


def test_batches_that_are_not_durable_are_not_folded(tmp_path: Path) -> None:
    rig = Rig(tmp_path, SMALL)
    rig.control(1)
    for _ in range(12):
        rig.batch(2)
    with pytest.raises(InvariantBroken, match="not durable"):
        rig.entries.fold_before(rig.entries.log.segments[-1].base_offset)


def test_folded_part_that_lost_its_end_is_damage(tmp_path: Path) -> None:
    rig = filled(tmp_path)
    rig.entries.log.roll()
    rig.entries.log.sync()
    fold(rig, len(rig.entries.log.segments) - 1)
    rig.stop(clean=False)
    for path in sorted((tmp_path / "log").glob("*.log"))[-2:]:
        path.unlink()
    (tmp_path / "log" / "sync-point").unlink()
    (tmp_path / "log" / "structure").unlink()
    with pytest.raises(CorruptMessage):
        rig.open(is_clean=False)


def test_retention_continues_within_folded_entries_and_beyond(tmp_path: Path) -> None:
    rig = filled(tmp_path)
    bases = [facts.base_offset for facts in rig.entries.log.segments]
    fold(rig, 3)
    rig.entries.drop_before(bases[1])
    rig.entries.log.delete_before(bases[1])
    assert (rig.entries.folded_offset, rig.entries.log.log_start_offset) == (bases[3], bases[1])
    rig.entries.drop_before(bases[4])
    rig.journal.sync()
    rig.entries.log.delete_before(bases[4])
    rig.reopen(clean=False)
    assert (rig.entries.folded_offset, rig.entries.log.log_start_offset) == (bases[4], bases[4])
    assert kept_range(rig.entries.snapshot()) == (bases[4], bases[4])


def copied(leader: EntryLog, rig: Rig) -> None:
    """Copy a prefix as `prefix_copies` does, without a link."""
    snapshot = leader.snapshot()
    offset, end_offset = kept_range(snapshot)
    log = rig.entries.log
    incoming = staging.Incoming(str(log.directory), log.config, log.files, offset)
    while offset < end_offset:
        found = leader.log.read(offset, 300, limit_offset=end_offset)
        offset = incoming.append(bytes(found.records), 1000)
    incoming.finish(end_offset)
    rig.entries.note_staged(snapshot)


def test_replica_installs_the_cleaned_part_of_a_peer(tmp_path: Path) -> None:
    leader, rig = filled(tmp_path / "leader"), Rig(tmp_path / "follower", SMALL)
    fold(leader, 4)
    rig.control(1)
    rig.batch(5)
    snapshot = leader.entries.snapshot()
    assert rig.entries.lacks_prefix(snapshot)
    copied(leader.entries, rig)
    assert not rig.entries.lacks_prefix(snapshot)
    rig.entries.install(snapshot)
    for _ in range(2):
        expected = [h for h in read_all(leader.entries.log) if h.base_offset < snapshot_end(leader)]
        assert read_all(rig.entries.log) == expected
        assert rig.entries.last_index == snapshot.index
        rig.reopen(clean=False)
    rig.control(5)
    assert rig.batch().base_offset == snapshot_end(leader)


def snapshot_end(rig: Rig) -> Offset:
    return kept_range(rig.entries.snapshot())[1]


def test_replica_that_has_the_entry_needs_no_copy(tmp_path: Path) -> None:
    leader = filled(tmp_path / "leader")
    whole = filled(tmp_path / "follower")
    fold(leader, 4)
    assert not whole.entries.lacks_prefix(leader.entries.snapshot())


@pytest.mark.parametrize("renamed", [0, 1, 2])
def test_replacement_that_a_crash_interrupted_is_completed(tmp_path: Path, renamed: int) -> None:
    leader, rig = filled(tmp_path / "leader"), Rig(tmp_path / "follower", SMALL)
    fold(leader, 4)
    rig.control(1)
    rig.batch(5)
    rig.entries.log.sync()
    copied(leader.entries, rig)
    snapshot = leader.entries.snapshot()
    first, end = kept_range(snapshot)
    start = leader.journal.facts(GROUP).start  # type: ignore[union-attr]
    rig.journal.reset(GROUP, start, is_pending=True)
    rig.journal.sync()
    rig.stop(clean=False)
    directory = tmp_path / "follower" / "log"
    steps = [(directory, Path(f"{directory}.replaced")), (Path(f"{directory}.incoming"), directory)]
    for old, new in steps[:renamed]:
        old.rename(new)
    rig.files = type(rig.files)(8)
    journal = type(rig.journal).open(tmp_path / "follower" / "raft", rig.files)
    staging.finish(str(directory), journal.facts(GROUP), rig.files.calls)
    journal.close(clean=False)
    rig.open(is_clean=False)
    assert (rig.entries.log.log_start_offset, rig.entries.next_offset) == (first, end)
    assert rig.entries.last_index == LogIndex(snapshot.index)
    assert sorted(path.name for path in directory.parent.iterdir()) == ["log", "raft"]


def test_copy_that_a_crash_interrupted_is_dropped(tmp_path: Path) -> None:
    leader, rig = filled(tmp_path / "leader"), filled(tmp_path / "follower")
    fold(leader, 4)
    before = read_all(rig.entries.log)
    copied(leader.entries, rig)
    rig.stop(clean=False)
    directory = tmp_path / "follower" / "log"
    staging.finish(str(directory), None, rig.files.calls)
    rig.open(is_clean=False)
    assert read_all(rig.entries.log) == before
    assert not Path(f"{directory}.incoming").exists()
