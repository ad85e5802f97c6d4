"""One group's entries: indexes over batches and control entries, cuts, starts, damage."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from random import Random

import msgspec
import pytest
from tests.broker.replication.entry_model import GROUP, MEMBERS, START
from tests.broker.storage.batches import make_batch
from tests.broker.storage.failing import FailingCalls

from kafkaesque.broker.raft.types import (
    FRESH,
    Entry,
    EntryKind,
    HardState,
    LogIndex,
    Membership,
    MembershipAt,
    Snapshot,
    Term,
)
from kafkaesque.broker.replication.entry_log import BatchPayload, BatchRef, EntryLog
from kafkaesque.broker.replication.raft_journal import RaftJournal
from kafkaesque.broker.storage.config import LogConfig
from kafkaesque.broker.storage.log import Log
from kafkaesque.broker.storage.open_files import OpenFiles, SystemCalls
from kafkaesque.lab.sim.disk import SimulatedDisk
from kafkaesque.model.errors import (
    CorruptMessage,
    InvariantBroken,
    OffsetOutOfRange,
    StorageFailed,
)
from kafkaesque.model.ids import MemberId, Offset
from kafkaesque.records.batch import read_header

SMALL = LogConfig(segment_bytes=400, retention_ms=-1)
LARGE = LogConfig(retention_ms=-1)
LEARNER = Membership((MemberId(0),), (MemberId(7),))


class Rig:
    """A group in a directory."""

    def __init__(
        self, path: Path, config: LogConfig = LARGE, calls: SystemCalls | None = None
    ) -> None:
        self.path = path
        self.config = config
        self.calls = calls
        self.open(is_clean=False)

    def open(self, *, is_clean: bool) -> None:
        self.files = OpenFiles(8, self.calls)
        self.journal = RaftJournal.open(self.path / "raft", self.files)
        if self.journal.facts(GROUP) is None:
            self.journal.create(GROUP, START)
            self.journal.sync()
        log = Log.open(self.path / "log", self.config, self.files, clean=is_clean)
        self.entries = EntryLog.open(GROUP, log, self.journal, is_clean=is_clean)
        self.journal.sync()

    def stop(self, *, clean: bool) -> None:
        self.entries.close(clean=clean)
        self.entries.log.close(clean=clean)
        self.journal.close(clean=clean)

    def reopen(self, *, clean: bool) -> None:
        self.stop(clean=clean)
        self.open(is_clean=clean)

    def control(self, term: int, payload: bytes | Membership | None = None) -> None:
        kind = EntryKind.NOOP
        if payload is not None:
            is_membership = isinstance(payload, Membership)
            kind = EntryKind.MEMBERSHIP if is_membership else EntryKind.DATA
        index = LogIndex(self.entries.last_index + 1)
        self.entries.append_control(Entry(index, Term(term), kind, 64, payload))
        self.journal.sync()

    def batch(self, count: int = 1, *, size_bytes: int = 20) -> BatchRef:
        term = self.entries.term_at(self.entries.last_index)
        data = make_batch(self.entries.next_offset, count, epoch=term, size_bytes=size_bytes)
        payload = BatchPayload(bytes(data), read_header(data))
        index = LogIndex(self.entries.last_index + 1)
        return self.entries.append_batch(index, term, payload, 1000)

    @property
    def shape(self) -> str:
        """`n` for a no-op, `m` for a membership, `f` for a fact, `b` for a batch; by term."""
        words: list[str] = []
        term = 0
        for entry in self.all():
            if entry.term != term:
                term = entry.term
                words.append(f"{term}:")
            words[-1] += (
                "b"
                if isinstance(entry.payload, BatchRef)
                else {EntryKind.NOOP: "n", EntryKind.MEMBERSHIP: "m"}.get(entry.kind, "f")
            )
        return " ".join(words)

    def all(self) -> Sequence[Entry]:
        entries = self.entries
        if entries.last_index < entries.first_index:
            return []
        return entries.entries_between(entries.first_index, entries.last_index, 10**9)


def story(path: Path, config: LogConfig = LARGE) -> Rig:
    """Entries 1 to 12: n b b m f b | n n b b b b, offsets 0 to 9."""
    rig = Rig(path, config)
    rig.control(1)
    rig.batch(2)
    rig.batch()
    rig.control(1, LEARNER)
    rig.control(1, b"fact")
    rig.batch()
    rig.control(2)
    rig.control(3)
    for _ in range(4):
        rig.batch()
    assert rig.shape == "1:nbbmfb 2:n 3:nbbbb"
    return rig


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("config", [SMALL, LARGE])
def test_reopened_log_has_the_same_entries(tmp_path: Path, config: LogConfig, clean: bool) -> None:
    rig = story(tmp_path, config)
    before, blobs = rig.all(), rig.entries.load(rig.all())
    rig.entries.log.sync()
    rig.reopen(clean=clean)
    assert rig.entries.last_index == 12
    assert rig.all() == before
    assert rig.entries.load(before) == blobs
    rig.batch()
    assert rig.shape == "1:nbbmfb 2:n 3:nbbbbb"


def test_new_log_is_empty_and_begins_after_its_start(tmp_path: Path) -> None:
    entries = Rig(tmp_path).entries
    assert (entries.first_index, entries.last_index, entries.term_at(LogIndex(0))) == (1, 0, 0)
    assert entries.next_offset == 0
    restart = entries.restart()
    assert restart.hard_state == FRESH
    assert restart.memberships == [MembershipAt(LogIndex(0), MEMBERS)]
    assert (restart.commit_index, restart.applied_index) == (0, 0)


def test_restart_recovers_votes_memberships_and_commit(tmp_path: Path) -> None:
    rig = story(tmp_path)
    rig.journal.save_hard_state(GROUP, HardState(Term(4), MemberId(2)))
    rig.journal.save_commit(GROUP, LogIndex(99))
    rig.reopen(clean=True)
    restart = rig.entries.restart()
    assert restart.hard_state == (4, 2)
    assert [m.index for m in restart.memberships] == [0, 4]
    assert restart.memberships[-1].membership == LEARNER
    assert restart.commit_index == 12, "a hint beyond the log is no hint"
    assert list(rig.entries.pending_controls()) == [(5, b"fact")]


def test_terms_offsets_and_indexes_agree(tmp_path: Path) -> None:
    entries = story(tmp_path, SMALL).entries
    terms = [entries.term_at(LogIndex(i)) for i in range(13)]
    assert terms == [0, 1, 1, 1, 1, 1, 1, 2, 3, 3, 3, 3, 3]
    ends = [entries.end_offset_of(LogIndex(i)) for i in range(13)]
    assert ends == [0, 0, 2, 3, 3, 3, 4, 4, 4, 5, 6, 7, 8]
    indexes = [entries.index_at(Offset(offset)) for offset in range(8)]
    assert indexes == [2, 2, 3, 6, 9, 10, 11, 12]
    for outside in (-1, 8):
        with pytest.raises(OffsetOutOfRange):
            entries.index_at(Offset(outside))


def test_piece_ends_before_the_size_limit_and_has_at_least_one_entry(tmp_path: Path) -> None:
    rig = story(tmp_path)
    size_bytes = rig.all()[1].size_bytes
    two = rig.entries.entries_between(LogIndex(2), LogIndex(12), size_bytes * 2)
    assert [entry.index for entry in two] == [2, 3]
    one = rig.entries.entries_between(LogIndex(2), LogIndex(12), 1)
    assert [entry.index for entry in one] == [2]
    last = rig.entries.entries_between(LogIndex(5), LogIndex(6), 10**9)
    assert [entry.index for entry in last] == [5, 6]


@pytest.mark.parametrize("config", [SMALL, LARGE])
@pytest.mark.parametrize(
    ("index", "shape", "next_offset"),
    [
        (12, "1:nbbmfb 2:n 3:nbbb", 7),
        (10, "1:nbbmfb 2:n 3:nb", 5),
        (9, "1:nbbmfb 2:n 3:n", 4),
        (8, "1:nbbmfb 2:n", 4),
        (7, "1:nbbmfb", 4),
        (6, "1:nbbmf", 3),
        (5, "1:nbbm", 3),
        (4, "1:nbb", 3),
        (2, "1:n", 0),
        (1, "", 0),
    ],
)
def test_cut_at_any_entry(
    tmp_path: Path, config: LogConfig, index: int, shape: str, next_offset: int
) -> None:
    rig = story(tmp_path, config)
    assert rig.entries.truncate_from(LogIndex(index)) == next_offset
    assert (rig.shape, rig.entries.next_offset) == (shape, next_offset)
    assert rig.entries.last_index == index - 1
    rig.control(9)
    rig.batch()
    assert rig.shape == f"{shape} 9:nb".strip()
    before = rig.all()
    rig.entries.log.sync()
    rig.reopen(clean=False)
    assert rig.all() == before


def test_batch_waits_for_the_journal(tmp_path: Path) -> None:
    rig = story(tmp_path)
    entries = rig.entries
    entries.append_control(Entry(LogIndex(13), Term(4), EntryKind.NOOP, 64, None))
    assert rig.journal.synced_position < entries.gate_position
    with pytest.raises(InvariantBroken, match="cannot take entry 14"):
        rig.batch()
    rig.journal.sync()
    rig.batch()
    entries.truncate_from(LogIndex(13))
    with pytest.raises(InvariantBroken):
        rig.batch()


def test_batch_that_does_not_follow_is_refused(tmp_path: Path) -> None:
    rig = story(tmp_path)

    def offer(index: int, term: int, offset: int, epoch: int) -> None:
        data = make_batch(offset, epoch=epoch)
        payload = BatchPayload(data, read_header(data))
        rig.entries.append_batch(LogIndex(index), Term(term), payload, 0)

    for place in [(14, 3, 8, 3), (13, 3, 9, 3), (13, 4, 8, 4), (13, 3, 8, 2)]:
        with pytest.raises(InvariantBroken):
            offer(*place)
    offer(13, 3, 8, 3)


def test_refused_write_leaves_the_log_as_it_was(tmp_path: Path) -> None:
    calls = FailingCalls()
    rig = Rig(tmp_path, SMALL, calls)
    rig.control(1)
    rig.batch()
    calls.failing.add("pwrite")
    with pytest.raises(StorageFailed):
        rig.batch(size_bytes=500)
    calls.failing.clear()
    assert (rig.entries.last_index, rig.entries.next_offset) == (2, 1)
    rig.batch(size_bytes=500)
    assert rig.shape == "1:nbb"
    rig.entries.log.sync()
    rig.reopen(clean=False)
    assert rig.shape == "1:nbb"


def test_snapshot_is_installed_over_anything(tmp_path: Path) -> None:
    state = msgspec.msgpack.encode({"offset": 70})
    snapshot = Snapshot(LogIndex(40), Term(5), LEARNER, state)
    for name, rig in (("new", Rig(tmp_path / "new")), ("old", story(tmp_path / "old", SMALL))):
        rig.entries.install(snapshot)
        found = rig.entries.snapshot()
        assert (found.index, found.term, found.membership) == (40, 5, LEARNER), name
        assert isinstance(found.state, bytes)
        assert msgspec.msgpack.decode(found.state)["offset"] == 70
        rig.journal.sync()
        rig.batch(3)
        rig.control(6)
        rig.entries.log.sync()
        rig.reopen(clean=False)
        assert (rig.entries.first_index, rig.entries.next_offset) == (41, 73)
        assert rig.shape == "5:b 6:n"
        assert rig.entries.term_at(LogIndex(40)) == 5
        assert rig.entries.restart().memberships == [MembershipAt(LogIndex(40), LEARNER)]


def test_dropped_segments_move_the_start_to_the_segment_that_is_kept(tmp_path: Path) -> None:
    rig = story(tmp_path, SMALL)
    before = {entry.index: entry for entry in rig.all()}
    base = rig.entries.log.segments[1].base_offset
    position = rig.entries.drop_before(Offset(base + 1))
    rig.journal.sync()
    assert rig.journal.synced_position >= position
    rig.entries.log.delete_before(Offset(base + 1))
    first = rig.entries.first_index
    assert 1 < first <= rig.entries.index_at(base)
    assert rig.all() == [entry for index, entry in before.items() if index >= first]
    assert rig.entries.term_at(LogIndex(first - 1)) == before[LogIndex(first - 1)].term
    assert rig.entries.snapshot().membership == LEARNER
    shape = rig.shape
    for clean in (True, False):
        rig.reopen(clean=clean)
        assert (rig.entries.first_index, rig.shape) == (first, shape)


def test_log_whose_files_were_not_deleted_yet_ends_with_them_deleted(tmp_path: Path) -> None:
    rig = story(tmp_path, SMALL)
    rig.entries.log.sync()
    base = rig.entries.log.segments[1].base_offset
    rig.entries.drop_before(base)
    rig.journal.sync()
    shape = rig.shape
    rig.reopen(clean=False)
    assert rig.shape == shape
    assert rig.entries.log.log_start_offset == base


def test_retention_of_everything_leaves_control_entries_after_the_last_batch(
    tmp_path: Path,
) -> None:
    rig = story(tmp_path, LogConfig(segment_bytes=400, retention_ms=1))
    rig.control(4)
    planned = rig.entries.expire(10**12, rig.entries.next_offset)
    assert planned is not None
    offset, position = planned
    assert offset == 8
    rig.journal.sync()
    assert rig.journal.synced_position >= position
    rig.entries.log.delete_before(offset)
    assert (rig.shape, rig.entries.first_index) == ("4:n", 13)
    assert rig.entries.expire(10**12, offset) is None
    rig.batch()
    rig.entries.log.sync()
    rig.reopen(clean=False)
    assert (rig.shape, rig.entries.next_offset) == ("4:nb", 9)


class CountingCalls(SystemCalls):
    """Counts reads and writes."""

    def __init__(self) -> None:
        self.opened: list[str] = []
        self.reads = 0

    def open(self, path: str, *, create: bool) -> int:
        self.opened.append(path.rpartition("/")[2])
        return super().open(path, create=create)

    def pread(self, fd: int, size_bytes: int, position: int) -> bytes:
        self.reads += 1
        return super().pread(fd, size_bytes, position)


def test_clean_start_reads_neither_batches_nor_entry_files(tmp_path: Path) -> None:
    story(tmp_path, SMALL).stop(clean=True)
    calls = CountingCalls()
    rig = Rig.__new__(Rig)
    rig.path, rig.config, rig.calls = tmp_path, SMALL, calls
    rig.open(is_clean=True)
    assert not [name for name in calls.opened if name.endswith((".log", ".entries", ".index"))]
    assert (rig.entries.last_index, rig.entries.term_at(LogIndex(12))) == (12, 3)


def test_consecutive_batches_are_read_at_once(tmp_path: Path) -> None:
    calls = CountingCalls()
    rig = Rig(tmp_path, calls=calls)
    rig.control(1)
    for _ in range(300):
        rig.batch()
    entries = rig.entries.entries_between(LogIndex(1), LogIndex(301), 10**9)
    calls.reads = 0
    blobs = rig.entries.load(entries)
    assert calls.reads == 1
    assert blobs[0] is None
    assert [read_header(blob).base_offset for blob in blobs[1:] if blob] == list(range(300))


def test_payload_that_is_not_stored_yet_is_loaded_from_memory(tmp_path: Path) -> None:
    data = bytes(make_batch(0))
    batch = Entry(LogIndex(1), Term(1), EntryKind.DATA, 9, BatchPayload(data, read_header(data)))
    fact = Entry(LogIndex(2), Term(1), EntryKind.DATA, 1, b"fact")
    # A control entry carries its payload itself.
    assert Rig(tmp_path).entries.load([batch, fact]) == [data, None]


@pytest.mark.parametrize("position", [3, 9, 14, 16, 18, 40, 70])
def test_damaged_batch_is_reported_found_by_a_scrub_and_repaired(
    tmp_path: Path, position: int
) -> None:
    rig = story(tmp_path)
    rig.entries.log.sync()
    entry = rig.all()[9]
    assert isinstance(entry.payload, BatchRef)
    [whole] = rig.entries.load([entry])
    assert whole is not None
    path = tmp_path / "log" / f"{0:020d}.log"
    data = bytearray(path.read_bytes())
    data[entry.payload.position + position] ^= 0x20
    path.write_bytes(data)
    assert rig.all()[9] == entry
    assert rig.entries.term_at(entry.index) == 3
    with pytest.raises(CorruptMessage, match=f"{path} .* position {entry.payload.position}:"):
        rig.entries.load(rig.all())
    found = rig.entries.verify(LogIndex(1), 10**9)
    assert (found.next_index, found.damaged) == (13, [entry])
    other = bytes(make_batch(5, epoch=3, size_bytes=19))
    for wrong in (other, bytes(whole)[:-1], bytes(whole)[:-1] + b"!", b""):
        with pytest.raises(CorruptMessage, match="not the batch of entry 10"):
            rig.entries.repair(entry, wrong)
    with pytest.raises(CorruptMessage, match="not a batch"):
        rig.entries.repair(rig.all()[6], bytes(whole))
    rig.entries.repair(entry, bytes(whole))
    assert rig.entries.verify(LogIndex(1), 10**9).damaged == []
    assert rig.entries.load([entry]) == [whole]


@pytest.mark.parametrize("position", [3, 9, 14, 16, 18, 40, 58, 70])
def test_damage_in_synced_batches_does_not_end_recovery_after_a_kill(
    tmp_path: Path, position: int
) -> None:
    """A damaged header must not hide the batches after it (found by `fault run single-flipped-bit`)."""
    rig = story(tmp_path)
    rig.entries.log.sync()
    rig.entries.save_places()
    entry = rig.all()[9]
    assert isinstance(entry.payload, BatchRef)
    path = tmp_path / "log" / f"{0:020d}.log"
    data = bytearray(path.read_bytes())
    data[entry.payload.position + position] ^= 0x20
    path.write_bytes(data)
    rig.reopen(clean=False)
    found = rig.entries.verify(LogIndex(1), 10**9)
    assert (found.next_index, found.damaged) == (13, [entry])


def test_saved_positions_are_cut_with_the_log_and_grow_with_it(tmp_path: Path) -> None:
    rig = story(tmp_path)
    rig.entries.log.sync()
    rig.entries.save_places()
    before = rig.all()
    rig.entries.truncate_from(LogIndex(11))
    rig.journal.sync()
    rig.reopen(clean=False)
    assert rig.all() == before[:10]
    assert rig.entries.verify(LogIndex(1), 10**9).damaged == []


def test_scrub_runs_in_steps_to_the_end(tmp_path: Path) -> None:
    rig = story(tmp_path, SMALL)
    index, seen = LogIndex(0), 0
    while index <= rig.entries.last_index:
        step = rig.entries.verify(index, 150)
        assert step.next_index > index
        index, seen = step.next_index, seen + step.size_bytes
    assert seen == sum(entry.size_bytes for entry in rig.all())
    assert rig.entries.verify(index, 150) == (13, 0, [])


def test_reference_from_before_a_cut_is_not_taken_for_damage(tmp_path: Path) -> None:
    rig = story(tmp_path)
    old = rig.all()
    rig.entries.truncate_from(LogIndex(10))
    with pytest.raises(OffsetOutOfRange, match="no longer"):
        rig.entries.load(old[9:])
    rig.control(4)
    for _ in range(3):
        rig.batch(2)
    with pytest.raises(OffsetOutOfRange, match="no longer"):
        rig.entries.load(old[10:])


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("harm", ["missing", "flipped", "short", "empty"])
def test_damaged_file_of_entries_is_rebuilt(tmp_path: Path, harm: str, clean: bool) -> None:
    rig = Rig(tmp_path, LogConfig(segment_bytes=30_000, retention_ms=-1))
    rig.control(1)
    for number in range(900):
        rig.batch()
        if number % 200 == 0:
            rig.control(1, b"fact")
    before = rig.all()
    rig.stop(clean=clean)
    for path in (tmp_path / "log").glob("*.entries"):
        data = bytearray(path.read_bytes())
        if harm == "missing":
            path.unlink()
        elif harm == "flipped":
            data[len(data) // 2] ^= 1
            path.write_bytes(data)
        else:
            path.write_bytes(data[: len(data) // 2] if harm == "short" else b"")
    rig.open(is_clean=clean)
    rig.batch()
    assert rig.all()[:-1] == before
    assert [rig.entries.index_at(Offset(o)) for o in (0, 450, 899)] == [2, 455, 906]
    rig.reopen(clean=True)
    assert rig.all()[:-1] == before


def test_log_that_lost_durable_batches_is_reported(tmp_path: Path) -> None:
    rig = story(tmp_path, SMALL)
    rig.entries.log.sync()
    rig.stop(clean=False)
    for path in (tmp_path / "log").glob("*.log"):
        path.unlink()
    with pytest.raises(CorruptMessage, match="has lost its batches from offset 0"):
        rig.open(is_clean=False)


def test_replica_of_a_group_that_is_not_in_the_journal_is_refused(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.journal.forget(GROUP)
    with pytest.raises(InvariantBroken, match="not in the journal"):
        EntryLog.open(GROUP, rig.entries.log, rig.journal, is_clean=False)


@pytest.mark.parametrize("is_synced", [True, False])
def test_batch_whose_term_is_not_in_the_journal_is_cut_unless_it_was_durable(
    tmp_path: Path, is_synced: bool
) -> None:
    rig = story(tmp_path)
    if is_synced:
        rig.entries.log.sync()
    rig.stop(clean=False)
    journal = RaftJournal.open(tmp_path / "raft", OpenFiles(4))
    journal.cut_from(GROUP, LogIndex(7))
    journal.close()
    if is_synced:
        with pytest.raises(CorruptMessage, match=r"term 3 at offset 4 .* was durable"):
            rig.open(is_clean=False)
    else:
        rig.open(is_clean=False)
        assert (rig.shape, rig.entries.next_offset) == ("1:nbbmfb", 4)


def test_reopened_group_is_not_cut_by_facts_that_a_crash_could_undo() -> None:
    """The disk is full: the journal could not save the new start of the log."""
    disk = SimulatedDisk(Random(1), lambda: 1000)
    rig = Rig(Path("/data"), SMALL, disk)
    rig.control(1)
    for _ in range(12):
        rig.batch(2)
    rig.entries.log.sync()
    before = rig.all()
    rig.entries.drop_before(rig.entries.log.segments[2].base_offset)
    rig.entries.log.close(clean=False)
    disk.faults.is_full = True
    log = Log.open("/data/log", SMALL, rig.files, clean=False)
    with pytest.raises(StorageFailed):
        EntryLog.open(GROUP, log, rig.journal, is_clean=False)
    disk.process_died()
    disk.faults.is_full = False
    rig.open(is_clean=False)
    assert rig.all() == before
