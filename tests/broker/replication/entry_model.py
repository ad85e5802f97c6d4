"""A group's log on a simulated disk, beside a model of what it must hold after any crash.

The model keeps every *version* that the log had, or was about to get, since it was last opened, and
for each *life* (the log between two installed snapshots) the floor: how many entries are certainly
durable. After a crash the log must be a prefix of a version, and not shorter than the floor.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from random import Random

import msgspec
from tests.broker.storage.batches import make_batch

from kafkaesque.broker.raft.types import Entry, EntryKind, LogIndex, Membership, Snapshot, Term
from kafkaesque.broker.replication.entry_log import BatchPayload, BatchRef, EntryLog
from kafkaesque.broker.replication.raft_journal import LogStart, RaftJournal
from kafkaesque.broker.storage.config import LogConfig
from kafkaesque.broker.storage.log import Log
from kafkaesque.broker.storage.open_files import OpenFiles
from kafkaesque.lab.sim.disk import PowerCut, SimulatedDisk
from kafkaesque.model.ids import GroupId, LeaderEpoch, MemberId, Offset
from kafkaesque.records.batch import read_header

GROUP = GroupId(16)
MEMBERS = Membership((MemberId(0), MemberId(1), MemberId(2)))
START = LogStart(LogIndex(0), Term(0), Offset(0), MEMBERS)
DATA = "/data"


@dataclass(frozen=True)
class Written:
    """One entry as it was written."""

    term: int
    kind: EntryKind
    content: object
    """The bytes of a batch or of a fact, or a membership."""
    base_offset: int
    next_offset: int

    @property
    def is_batch(self) -> bool:
        return self.next_offset > self.base_offset


Version = dict[int, Written]


@dataclass
class Life:
    start: LogStart
    versions: list[Version] = field(default_factory=list)
    floor: int = 0
    """Entries up to this index are durable."""
    begun_position: int = 0
    """The journal position that makes this life the only one that can be found."""


class Machine:
    """Runs random operations on an EntryLog, as a driver of Raft would."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.disk = SimulatedDisk(self.random, lambda: 0)
        self.config = LogConfig(
            segment_bytes=self.random.choice([150, 400, 2000]),
            index_interval_bytes=self.random.choice([0, 200]),
            retention_ms=-1,
        )
        self.open_files()
        self.journal.create(GROUP, START)
        self.journal.sync()
        self.lives = [Life(START, [{}])]
        self.entries = self.open_entries(is_clean=False)
        self.last_term = 0
        self.must_begin_term = False
        self.known: dict[tuple[int, int], Written] = {}
        """The entry at an index and term is the same for ever, in every log (Raft 5.3)."""
        self.control_positions: dict[int, int] = {}

    def open_files(self) -> None:
        self.files = OpenFiles(6, self.disk)
        self.journal = RaftJournal.open(f"{DATA}/raft", self.files)

    def open_entries(self, *, is_clean: bool) -> EntryLog:
        log = Log.open(f"{DATA}/log", self.config, self.files, clean=is_clean)
        return EntryLog.open(GROUP, log, self.journal, is_clean=is_clean)

    @property
    def life(self) -> Life:
        return self.lives[-1]

    @property
    def version(self) -> Version:
        return self.life.versions[-1]

    @property
    def last_index(self) -> int:
        return max(self.version, default=int(self.life.start.index))

    @property
    def term(self) -> int:
        last = self.version.get(self.last_index)
        return int(self.life.start.term) if last is None else last.term

    def note_durable(self) -> None:
        """Raise the floor by what was synced since."""
        log, journal, life = self.entries.log, self.journal, self.life
        if len(self.lives) > 1 and journal.synced_position < life.begun_position:
            return
        del self.lives[:-1]
        index = life.floor
        while (written := self.version.get(index + 1)) is not None:
            if written.is_batch:
                if written.next_offset > log.synced_offset:
                    break
            elif self.control_positions.get(index + 1, 0) > journal.synced_position:
                break
            index += 1
        life.floor = max(life.floor, index)

    # Actions of a driver

    def write(self, written: Written) -> None:
        index = self.last_index + 1
        written = self.known.setdefault((index, written.term), written)
        if written.is_batch and self.journal.synced_position < self.entries.gate_position:
            self.journal.sync()
            self.note_durable()
        self.life.versions.append({**self.version, index: written})
        self.last_term = max(self.last_term, written.term)
        self.must_begin_term = False
        if written.is_batch:
            assert isinstance(written.content, bytes)
            payload = BatchPayload(written.content, read_header(written.content))
            self.entries.append_batch(LogIndex(index), Term(written.term), payload, 0)
        else:
            entry = Entry(LogIndex(index), Term(written.term), written.kind, 64, written.content)
            self.entries.append_control(entry)
            self.control_positions[index] = self.journal.position

    def append_batch(self) -> None:
        if self.must_begin_term or self.term == 0:
            self.append_noop()
            return
        base, random = self.entries.next_offset, self.random
        count = random.randrange(1, 4)
        data = bytes(make_batch(base, count, epoch=self.term, size_bytes=random.randrange(40)))
        self.write(Written(self.term, EntryKind.DATA, data, base, base + count))

    def append_noop(self) -> None:
        offset = self.entries.next_offset
        self.write(Written(self.last_term + 1, EntryKind.NOOP, None, offset, offset))

    def append_control(self) -> None:
        if self.must_begin_term or self.term == 0:
            self.append_noop()
            return
        offset = self.entries.next_offset
        kind, content = self.random.choice(
            [
                (EntryKind.MEMBERSHIP, Membership((MemberId(self.random.randrange(9)),))),
                (EntryKind.DATA, bytes([self.random.randrange(256)])),
            ]
        )
        self.write(Written(self.term, kind, content, offset, offset))

    def cut(self) -> None:
        dropped = self.entries.log.log_start_offset
        """Everything before it is committed and is never cut."""
        kept = [i for i, w in self.version.items() if w.base_offset >= dropped]
        index = max(self.entries.first_index, self.last_index - self.random.randrange(6))
        if index not in kept:
            return
        version = self.version
        before = version[index - 1].term if index - 1 in version else int(self.life.start.term)
        self.must_begin_term = version[index].term == before
        self.life.versions.append({i: w for i, w in version.items() if i < index})
        self.life.floor = min(self.life.floor, index - 1)
        end_offset = self.entries.truncate_from(LogIndex(index))
        assert end_offset == version[index].base_offset

    def drop(self) -> None:
        """Only applied entries are dropped, so they are durable."""
        batches = [w for i, w in self.version.items() if i <= self.life.floor and w.is_batch]
        if not batches or len(self.lives) > 1:
            return
        offset = Offset(self.random.choice(batches).next_offset)
        if self.random.randrange(3) == 0 and offset == self.entries.next_offset:
            offset = self.entries.log.plan_retention(10**15, offset)
        position = self.entries.drop_before(offset)
        if self.journal.synced_position < position:
            self.journal.sync()
        self.entries.log.delete_before(offset)
        self.note_durable()

    def install(self) -> None:
        """Installs a snapshot of committed entries that this log lacks, so after everything
        committed here."""
        index = self.last_index + self.random.randrange(-3, 6)
        if index < self.entries.first_index:
            return
        log = self.entries.log
        offset = max(log.log_start_offset, log.log_end_offset + self.random.randrange(-4, 20))
        term = max(1, self.term + self.random.randrange(3))
        self.last_term = max(term, self.last_term)
        state = msgspec.msgpack.encode({"offset": offset})
        start = LogStart(LogIndex(index), Term(term), Offset(offset), MEMBERS)
        self.lives.append(Life(start, [{}], index, 2**62))
        self.known.clear()
        self.control_positions.clear()
        self.must_begin_term = False
        self.entries.install(Snapshot(start.index, start.term, MEMBERS, state))
        self.life.begun_position = self.journal.position
        self.note_durable()

    def sync_journal(self) -> None:
        self.journal.sync()
        self.note_durable()

    def sync_log(self) -> None:
        self.entries.log.sync()
        self.note_durable()

    def save_commit(self) -> None:
        self.journal.save_commit(GROUP, LogIndex(self.random.randrange(self.last_index + 2)))

    def step(self) -> None:
        actions = [
            *[(12, self.append_batch), (3, self.append_noop), (3, self.append_control)],
            *[(2, self.cut), (2, self.drop), (1, self.install), (1, self.save_commit)],
            *[(3, self.sync_journal), (3, self.sync_log)],
        ]
        weights = [weight for weight, _ in actions]
        [(_, action)] = self.random.choices(actions, weights)
        action()

    # Stops and starts

    def crash(self) -> None:
        self.disk.crash()
        self.open_files()
        self.entries = self.open_entries(is_clean=False)
        found = self.check_found()
        self.begin_again(found)

    def restart(self) -> None:
        """A clean stop and a start; the start must not read the log."""
        log = self.entries.log
        self.entries.close()
        log.close()
        self.journal.close()
        self.files.close()
        before = self.version
        self.open_files()
        self.entries = self.open_entries(is_clean=True)
        assert self.entries.last_index == self.last_index
        self.begin_again(before)

    def begin_again(self, found: Mapping[int, Written]) -> None:
        self.journal.sync()
        self.entries.log.sync()
        start = self.journal.facts(GROUP).start  # type: ignore[union-attr]
        version = {i: w for i, w in found.items() if i > start.index}
        last = max(version, default=int(start.index))
        self.lives = [Life(start, [version], last)]
        self.known = {(i, w.term): w for i, w in version.items()}
        # A vote for the next term may have been given: never lead an old one again.
        self.last_term += 1
        self.must_begin_term = True

    def check_found(self) -> Version:
        """Checks that what was recovered is one of the allowed states."""
        found = contents(self.entries)
        start = self.journal.facts(GROUP).start  # type: ignore[union-attr]
        last = int(self.entries.last_index)
        reasons = []
        for life in self.lives:
            if start.index < life.start.index or last < life.floor:
                reasons.append(f"ends at {last}, floor {life.floor}, starts at {start.index}")
                continue
            for version in life.versions:
                expected = {i: w for i, w in version.items() if start.index < i <= last}
                before = version.get(start.index)
                term = before.term if before else int(life.start.term)
                is_start = before is not None or start.index == life.start.index
                if expected == found and is_start and term == start.term:
                    return found
            reasons.append(f"{found} is the beginning of none of {life.versions}")
        raise AssertionError(reasons)

    def check_now(self) -> None:
        """Without a crash the log equals the last version."""
        entries, version = self.entries, self.version
        first = int(entries.first_index)
        assert entries.last_index == self.last_index
        assert contents(entries) == {i: w for i, w in version.items() if i >= first}
        offset = entries.next_offset
        for index in range(self.last_index, first - 1, -1):
            written = version[index]
            assert entries.term_at(LogIndex(index)) == written.term
            assert entries.end_offset_of(LogIndex(index)) == written.next_offset
            assert written.next_offset == offset
            offset = Offset(written.base_offset)
            for record in range(written.base_offset, written.next_offset):
                assert entries.index_at(Offset(record)) == index


def contents(entries: EntryLog) -> Version:
    """All entries, read in pieces."""
    found: Version = {}
    index = entries.first_index
    offset: int | None = None
    while index <= entries.last_index:
        piece = entries.entries_between(index, entries.last_index, 300)
        assert piece
        assert piece[0].index == index
        assert len(piece) == 1 or sum(entry.size_bytes for entry in piece) <= 300
        for entry, blob in zip(piece, entries.load(piece), strict=True):
            if isinstance(entry.payload, BatchRef):
                base, end = entry.payload.base_offset, entry.payload.next_offset
                assert blob is not None
                assert len(blob) == entry.size_bytes == entry.payload.size_bytes
                assert read_header(blob).leader_epoch == LeaderEpoch(entry.term)
                content: object = bytes(blob)
            else:
                base = end = entries.end_offset_of(entry.index)
                content = entry.payload
            assert offset is None or base == offset
            offset = end
            found[entry.index] = Written(entry.term, entry.kind, content, base, end)
        index = LogIndex(piece[-1].index + 1)
    return found


__all__ = ["Machine", "PowerCut"]
