"""The Raft log of one group: batches in a Kafka log, everything else in the raft journal.

An entry is a batch or a control entry (no-op, membership, a fact of the state machine such as a
trim). The index counts both. The term of a batch is its leader epoch. The index of a batch is not
stored: it follows from the control entries, whose indexes are in the journal, and from the order of
the batches.
Two rules make that hold after any crash:

- *A batch is written only when the journal is durable up to `gate_position`*: every control entry
  before it, and every truncation or reset of control entries. So a batch that is found on disk has
  everything before it.
- *Segments are deleted or cleaned only after the journal says so durably*: first `drop_before` or
  `fold_before`, and when the position that it returns is synced, `Log.delete_before` or
  `Log.replace_segments`. Folded batches are no longer entries, so they are not counted (ADR 10).

A control entry may become durable before a batch that precedes it. If a crash loses that batch, the
control entry is cut too (`entry_recovery`).

`load` of an entry that has been truncated or dropped raises OffsetOutOfRange.

Threads: all calls belong to the owner's thread. `truncate_from`, `install` and `repair` wait for the
disk.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol, Self

from kafkaesque.broker.raft.types import (
    NO_INDEX,
    Entry,
    EntryKind,
    LogIndex,
    Membership,
    MembershipAt,
    Restart,
    Snapshot,
    Term,
)
from kafkaesque.broker.replication import staging
from kafkaesque.broker.replication.entry_index import BLOCK_ENTRIES, POSITION_MASK, EntryIndex
from kafkaesque.broker.replication.entry_map import EntryMap
from kafkaesque.broker.replication.entry_recovery import recover
from kafkaesque.broker.replication.raft_journal import RaftJournal
from kafkaesque.broker.replication.rules.entry_payload import (
    BatchPayload,
    BatchRef,
    Blob,
    MachineState,
    Verified,
    difference,
    encode_state,
    kept_range,
    machine_data,
    runs_of,
    stored_control,
)
from kafkaesque.broker.replication.rules.journal_records import (
    Closing,
    ControlEntry,
    GroupFacts,
    LogStart,
)
from kafkaesque.broker.storage.log import Log
from kafkaesque.model.errors import CorruptMessage, OffsetOutOfRange, StorageFailed, check
from kafkaesque.model.ids import GroupId, Offset
from kafkaesque.records.batch import BatchHeader

__all__ = [
    "BatchPayload",
    "BatchRef",
    "Blob",
    "EntryLog",
    "MachineState",
    "Verified",
    "kept_range",
    "machine_data",
]

_make_tuple = tuple.__new__  # half the price of a NamedTuple's own constructor


class EntryWitness(Protocol):
    """Is notified of every change of an entry log. The simulation's checkers are."""

    def writes_batch(self, index: LogIndex, term: Term, payload: BatchPayload) -> None:
        """Before the write: a power cut during it may leave the batch on the disk."""

    def did_not_write(self) -> None:
        """The disk rejected the write."""

    def wrote_batch(self, index: LogIndex, term: Term, payload: BatchPayload) -> None: ...

    def wrote_control(self, entry: Entry) -> None: ...

    def cuts(self, index: LogIndex) -> None:
        """Before the entries from `index` on are truncated."""

    def installed(self, snapshot: Snapshot) -> None: ...


class EntryLog:
    """Implements raft.types.RaftLog. Created by `open`."""

    __slots__ = (
        "_active",
        "_control_index",
        "_facts",
        "_journal",
        "_machine_state",
        "_map",
        "_staged_index",
        "_term",
        "copied_until",
        "gate_position",
        "group",
        "last_index",
        "log",
        "witness",
    )

    def __init__(self, group: GroupId, log: Log, journal: RaftJournal, facts: GroupFacts) -> None:
        self.group = group
        self.log = log
        self._journal = journal
        self._facts = facts
        self._map = EntryMap(log, facts)
        self._active: EntryIndex | None = None
        """The index of the segment that is written to; None until something is written."""
        self._term = facts.start.term
        """The term of the last entry, as of the last control entry."""
        self._control_index = facts.start.index
        """The last control entry; the start if there is none."""
        self.last_index: LogIndex = facts.start.index
        self._machine_state: MachineState | None = None
        """The newest durable state of the state machine; its index is at least first_index - 1."""
        self.gate_position = 0
        """The journal must be synced up to here before the next batch is written."""
        self._staged_index: LogIndex = NO_INDEX
        """The index of a snapshot whose batches are complete in the log being built beside this one."""
        self.witness: EntryWitness | None = None
        self.copied_until = 0.0
        """Monotonic time until which a peer may be copying folded batches: set by `note_copying`."""

    @classmethod
    def open(cls, group: GroupId, log: Log, journal: RaftJournal, *, is_clean: bool) -> Self:
        """Open the group's entries as they are on disk, and cut a torn tail. Blocking.

        `is_clean`: the node closed everything when it last stopped. Journal and log may need a sync
        before Raft sees the entries. Raises CorruptMessage if something durable is missing: then
        this replica is lost and must be copied from a peer.
        """
        facts = journal.facts(group)
        check(facts is not None, f"group {group} is not in the journal")
        entries = cls(group, log, journal, facts)  # type: ignore[arg-type]
        closing = journal.take_closing(group)
        if is_clean and closing is not None and closing.end_offset == log.log_end_offset:
            last_index = closing.last_index
        else:
            last_index = recover(group, log, journal, entries._map)
        entries._set_last_index(last_index)
        return entries

    def close(self, *, clean: bool = True) -> None:
        """Record the last index, so that the next open need not count. Log and journal stay open."""
        self._map.close(clean=clean)
        if clean:
            closing = Closing(self.last_index, self.log.log_end_offset)
            self._journal.save_closing(self.group, closing)

    # -- RaftLog ---------------------------------------------------------------------------------

    @property
    def first_index(self) -> LogIndex:
        return LogIndex(self._facts.start.index + 1)

    def term_at(self, index: LogIndex) -> Term:
        return self._map.term_at(index)

    def entries_between(
        self, first: LogIndex, last: LogIndex, size_bytes_max: int
    ) -> Sequence[Entry]:
        entries: list[Entry] = []
        size_bytes = 0
        for entry in self._entries_from(first, last):
            size_bytes += entry.size_bytes
            if size_bytes > size_bytes_max and entries:
                break
            entries.append(entry)
        return entries

    def snapshot(self) -> Snapshot:
        start, machine = self._facts.start, self._machine_state
        if machine is not None and machine.index > start.index:
            index = machine.index
            state = encode_state(self.end_offset_of(index), machine.data)
            return Snapshot(index, self.term_at(index), self._membership_at(index), state)
        first_offset = self.log.log_start_offset if start.is_kept else start.offset
        state = encode_state(start.offset, machine.data if machine else b"", first_offset)
        return Snapshot(start.index, start.term, start.membership, state)

    def note_machine_state(self, state: MachineState) -> None:
        """Record that the state machine has saved `state` durably: snapshots contain it from now
        on."""
        self._machine_state = state

    def restart(self) -> Restart:
        """The state for a restarted Raft, once journal and log are synced."""
        facts = self._facts
        memberships = [MembershipAt(facts.start.index, facts.start.membership)]
        for entry in facts.control:
            if isinstance(entry.payload, Membership):
                memberships.append(MembershipAt(entry.index, entry.payload))
        commit_index = max(facts.start.index, min(facts.commit_index, self.last_index))
        return Restart(facts.hard_state, memberships, commit_index, facts.start.index)

    def _entries_from(self, index: LogIndex, last: LogIndex) -> Iterator[Entry]:
        check(self.first_index <= index <= last <= self.last_index, f"no entries {index} to {last}")
        while index <= last:
            control = self._map.control_at(index)
            if control is not None:
                yield stored_control(control)
                index = LogIndex(index + 1)
                continue
            segment, (packed, end_position, end_offset) = self._map.run_from(index)
            term, base = self._map.term_at(index), segment.base_offset
            count = min(len(packed), self._map.batches_at(index), last + 1 - index)
            ends = [(place & POSITION_MASK, segment.offset_of(place)) for place in packed]
            ends.append((end_position, end_offset))
            for number in range(count):
                position, offset = ends[number]
                next_position, next_offset = ends[number + 1]
                size_bytes = next_position - position
                ref = BatchRef(offset, next_offset, size_bytes, base, position)
                yield Entry(index, term, EntryKind.DATA, size_bytes, ref)
                index = LogIndex(index + 1)

    # -- offsets ---------------------------------------------------------------------------------

    @property
    def next_offset(self) -> Offset:
        """The offset of the next batch."""
        return self.log.log_end_offset

    def end_offset_of(self, index: LogIndex) -> Offset:
        """The Kafka offset after entry `index`."""
        behind = self.last_index - index
        if behind <= 0:
            return self.log.log_end_offset
        active = self._active
        if active is not None and index >= self._control_index and behind <= len(active.tail):
            return active.offset_of(active.tail[-behind])
        return self._offset_at(LogIndex(index + 1))

    def index_at(self, offset: Offset) -> LogIndex:
        """The entry that has the record at `offset`."""
        if not self._facts.start.offset <= offset < self.log.log_end_offset:
            raise OffsetOutOfRange(f"offset {offset} is not in {self.log.directory}")
        return self._map.index_at(offset)

    def find_again(self, offset: Offset) -> Offset | None:
        """Help the log find the batch with `offset` when a damaged batch before it stops a walk along
        the headers. Returns where the batch begins, or None if that is unknown."""
        if not self._facts.start.offset <= offset < self.log.log_end_offset:
            return None
        try:
            segment_base_offset, base_offset, position = self._map.position_at(offset)
            self.log.segment(segment_base_offset).remember(base_offset, position)
        except (CorruptMessage, OffsetOutOfRange, StorageFailed):
            return None
        return base_offset

    def _offset_at(self, index: LogIndex) -> Offset:
        """The offset at which entry `index` begins."""
        if index <= self._facts.start.index:
            return self._facts.start.offset
        control = self._map.control_at(index)
        return self._map.offset_of(index) if control is None else control.offset

    # -- writing ---------------------------------------------------------------------------------

    @property
    def is_gate_open(self) -> bool:
        """Whether every control entry is durable, so that a batch may be written after it."""
        return self._journal.synced_position >= self.gate_position

    def append_batch(
        self, index: LogIndex, term: Term, payload: BatchPayload, now_ms: int
    ) -> BatchRef:
        """Write a batch to the page cache. StorageFailed leaves everything as it was."""
        data, header = payload
        if (
            index != self.last_index + 1
            or header.base_offset != self.log.log_end_offset
            or int(header.leader_epoch) != term
            or not self.is_gate_open
            or term != self._term
        ):
            self._refuse(index, term, header)
        if self._active is None:
            self._active = self._map.active(index)
        if self.witness is None:
            return self._note(index, header, self.log.append(data, header, now_ms))
        self.witness.writes_batch(index, term, payload)
        try:
            segment_base_offset = self.log.append(data, header, now_ms)
        except StorageFailed:
            self.witness.did_not_write()
            raise
        written = self._note(index, header, segment_base_offset)
        self.witness.wrote_batch(index, term, payload)
        return written

    def _note(self, index: LogIndex, header: BatchHeader, segment_base_offset: Offset) -> BatchRef:
        """Record that the batch just written is entry `index`."""
        active, base_offset, size_bytes = self._active, header.base_offset, header.size_bytes
        if active is None or segment_base_offset == base_offset:
            active = self._active = self._map.begin(base_offset, index)
        position = active.append(size_bytes, self.log.log_end_offset)
        if len(active.tail) % BLOCK_ENTRIES == 0:
            active.flush(self.log.files)
        self.last_index = index
        end_offset = active.end_offset
        return _make_tuple(
            BatchRef, (base_offset, end_offset, size_bytes, segment_base_offset, position)
        )

    def save_places(self) -> None:
        """Save the entry index, because the log's files were synced."""
        if self._active is not None and self.log.file_synced_offset >= self.log.synced_offset:
            self._active.save(self.log.files)

    def _refuse(self, index: LogIndex, term: Term, header: BatchHeader) -> None:
        gate = f"journal {self._journal.synced_position} of {self.gate_position}"
        place = f"{self.log.directory} at entry {self.last_index}, offset {self.next_offset}"
        check(False, f"{place} ({gate}) cannot take entry {index} of term {term}: {header}")

    def append_control(self, entry: Entry) -> None:
        """Save an entry without a batch. The journal must be synced before the next batch."""
        check(entry.index == self.last_index + 1, f"entry {entry.index} leaves a gap")
        payload = entry.payload
        is_control = payload is None or isinstance(payload, bytes | Membership)
        check(is_control, f"entry {entry.index} is not a control entry")
        control = ControlEntry(entry.index, entry.term, entry.kind, self.next_offset, payload)  # type: ignore[arg-type]
        self._journal.save_control(self.group, control)
        self._set_last_index(entry.index)
        if self.witness is not None:
            self.witness.wrote_control(entry)

    def truncate_from(self, index: LogIndex) -> Offset:
        """Truncate the entries from `index` on. Returns the offset at which the log now ends. Blocking."""
        check(self.first_index <= index <= self.last_index, f"cannot cut at entry {index}")
        if self.witness is not None:
            self.witness.cuts(index)
        end_offset = self._offset_at(index)
        cut_index = index
        while self._map.control_at(cut_index) is not None:
            cut_index = LogIndex(cut_index + 1)
        if end_offset < self.log.log_end_offset:
            self._map.cut(cut_index)
        # If the journal recorded the cut before the log had it, durable batches would look like damage.
        self.log.truncate_to(end_offset)
        self._journal.cut_from(self.group, index)
        self._active = None
        self._set_last_index(LogIndex(index - 1))
        return end_offset

    def install(self, snapshot: Snapshot) -> None:
        """Restart after `snapshot`, without entries. Blocking if there are batches now."""
        first, offset = kept_range(snapshot)
        start = LogStart(snapshot.index, snapshot.term, offset, snapshot.membership, first < offset)
        if start.is_kept:
            self._install_staged(start)
        else:
            self._install_empty(start)
        if self.witness is not None:
            self.witness.installed(snapshot)

    def _install_empty(self, start: LogStart) -> None:
        is_empty = self.log.size_bytes == 0
        self._journal.reset(self.group, start, is_pending=not is_empty)
        if not is_empty:
            # Old batches found after the new start could be taken for new ones.
            self._journal.sync()
            self._map.clear()
        self.log.reset_to(start.offset)
        if not is_empty:
            self._journal.reset_done(self.group)
        self._active = None
        self._set_last_index(start.index)

    def _install_staged(self, start: LogStart) -> None:
        """Replace the log by the one that was built beside it. Blocking."""
        check(self._staged_index == start.index, f"no batches before entry {start.index} are here")
        self._staged_index = NO_INDEX
        self._journal.reset(self.group, start, is_pending=True)
        self._journal.sync()
        self._map.close(clean=False)
        self.log = staging.replace(self.log)
        self._journal.reset_done(self.group)
        self._map = EntryMap(self.log, self._facts)
        self._active = None
        self._set_last_index(start.index)

    def lacks_prefix(self, snapshot: Snapshot) -> bool:
        """Whether the snapshot refers to batches that must be fetched before it is installed."""
        (first_offset, offset), index = kept_range(snapshot), snapshot.index
        if first_offset >= offset or index < self.first_index or self._staged_index == index:
            return False
        return index > self.last_index or self.term_at(index) != snapshot.term

    def note_staged(self, snapshot: Snapshot) -> None:
        """Record that all batches of the snapshot are in the log being built beside this one."""
        self._staged_index = snapshot.index

    def _set_last_index(self, index: LogIndex) -> None:
        """Make `index` the last entry, after the control entries have changed."""
        facts = self._facts
        last = facts.control[-1] if facts.control else facts.start
        self._term, self._control_index = last.term, last.index
        self.gate_position = self._journal.position
        self.last_index = index

    # -- the start of the log --------------------------------------------------------------------

    def expire(self, now_ms: int, committed_offset: Offset) -> tuple[Offset, int] | None:
        """Drop the entries that retention has expired. Returns the offset for `Log.delete_before` and
        the journal position that must be synced first; None if nothing has expired."""
        offset = self.log.plan_retention(now_ms, committed_offset)
        if offset <= self.log.log_start_offset:
            return None
        return offset, self.drop_before(offset)

    def drop_before(self, offset: Offset) -> int:
        """Drop the entries in segments that end at or before `offset`. They must be applied.

        Returns the journal position that must be synced before the segments are deleted. Batches
        before `offset` in the segment that contains it remain entries.
        """
        bases = [s.base_offset for s in self.log.segments if s.base_offset <= offset]
        base_offset = max(bases, default=Offset(0))
        if base_offset > self._facts.start.offset:
            self._move_start(base_offset, is_kept=False)
        return self._journal.position

    def fold_before(self, base_offset: Offset) -> int:
        """Turn the batches before `base_offset`, the start of a segment, into plain log: they are no
        longer entries. They must be committed, applied and durable here.

        Returns the journal position that must be synced before any of them is rewritten.
        """
        if base_offset > self._facts.start.offset:
            check(base_offset <= self.log.file_synced_offset, f"{base_offset} is not durable yet")
            self._move_start(base_offset, is_kept=True)
        return self._journal.position

    def _move_start(self, base_offset: Offset, *, is_kept: bool) -> None:
        first = self._map.first_index_of(base_offset) or LogIndex(self.last_index + 1)
        index = LogIndex(first - 1 - self._map.controls_at(base_offset))
        term, membership = self.term_at(index), self._membership_at(index)
        self._map.drop_before(base_offset)
        self._active = None
        start = LogStart(index, term, base_offset, membership, is_kept)
        self._journal.move_start(self.group, start)
        self._control_index = max(self._control_index, index)

    @property
    def folded_offset(self) -> Offset:
        """Batches before it are no longer entries."""
        return self._facts.start.offset

    def note_copying(self, until: float) -> None:
        """Record that a peer is copying folded batches, which must not be cleaned before the
        monotonic time `until`."""
        self.copied_until = until

    def latest_membership(self) -> Membership:
        """The last membership in the log, committed or not."""
        return self._membership_at(self.last_index)

    def _membership_at(self, index: LogIndex) -> Membership:
        membership = self._facts.start.membership
        for entry in self._facts.control:
            if entry.index <= index and isinstance(entry.payload, Membership):
                membership = entry.payload
        return membership

    def pending_controls(self) -> Iterator[tuple[LogIndex, bytes]]:
        """The state machine's control entries in the log, in order."""
        for entry in self._facts.control:
            if isinstance(entry.payload, bytes):
                yield entry.index, entry.payload

    # -- bytes -----------------------------------------------------------------------------------

    def load(self, entries: Sequence[Entry]) -> list[Blob]:
        """The bytes of each entry that has any. Consecutive batches are read together.

        A damaged batch raises CorruptMessage with its file and position.
        """
        blobs: list[Blob] = []
        for run in runs_of(entries):
            payload = run[0].payload
            if type(payload) is BatchRef:
                blobs += self._read(run)
            else:
                blobs.append(payload.data if type(payload) is BatchPayload else None)
        return blobs

    def verify(self, index: LogIndex, size_bytes_max: int) -> Verified:
        """One step of a scrub: verify the batches from entry `index` on."""
        index = max(index, self.first_index)
        if index > self.last_index:
            return Verified(index, 0, [])
        entries = self.entries_between(index, self.last_index, size_bytes_max)
        damaged = []
        try:
            self.load(entries)
        except (CorruptMessage, StorageFailed):
            damaged = [entry for entry in entries if not self._is_sound(entry)]
        size_bytes = sum(entry.size_bytes for entry in entries)
        return Verified(LogIndex(entries[-1].index + 1), size_bytes, damaged)

    def _is_sound(self, entry: Entry) -> bool:
        try:
            self.load([entry])
        except (CorruptMessage, StorageFailed):
            return False
        return True

    def repair(self, damaged: Entry, data: bytes | memoryview) -> None:
        """Replace a damaged batch by a peer's copy, durably.

        Raises CorruptMessage if the copy is another batch, and OffsetOutOfRange if the batch has left
        the log meanwhile.
        """
        self._check_current(damaged)
        index = damaged.index
        entry = self.entries_between(index, index, 0)[0]
        ref = entry.payload
        if type(ref) is not BatchRef:
            raise CorruptMessage(f"entry {index} of group {self.group} is not a batch")
        wrong = difference(bytes(data), 0, entry.term, ref)
        if wrong is not None or len(data) != ref.size_bytes:
            raise CorruptMessage(f"not the batch of entry {index} of group {self.group}: {wrong}")
        self.log.rewrite_at(ref.segment_base_offset, ref.position, data)

    def _read(self, entries: Sequence[Entry]) -> Iterator[memoryview]:
        """Read consecutive batches of one segment."""
        first: BatchRef = entries[0].payload  # type: ignore[assignment]
        last: BatchRef = entries[-1].payload  # type: ignore[assignment]
        size_bytes = last.position + last.size_bytes - first.position
        self._check_current(entries[0])
        segment = self.log.segment(first.segment_base_offset)
        try:
            data = segment.reader(self.log.files)(size_bytes, first.position)
        except OSError as error:
            raise StorageFailed(f"cannot read {segment.file.path}: {error}") from error
        view = memoryview(data)
        for entry in entries:
            ref: BatchRef = entry.payload  # type: ignore[assignment]
            start = ref.position - first.position
            wrong = difference(data, start, entry.term, ref)
            if wrong is not None:
                self._check_current(entry)
                raise segment.damaged(ref.position, wrong)
            yield view[start : start + ref.size_bytes]

    def _check_current(self, entry: Entry) -> None:
        """Check that a reference is not older than a truncation or the start of the log."""
        index = entry.index
        if not self.first_index <= index <= self.last_index or self.term_at(index) != entry.term:
            raise OffsetOutOfRange(f"entry {index} of group {self.group} is no longer in the log")
