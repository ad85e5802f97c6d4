"""A disk for one group on one node: what is written, what is durable, and what a crash leaves.

Fulfils RaftLog with the written image, as a file in the page cache would.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from kafkaesque.broker.raft.ready import Ready
from kafkaesque.broker.raft.types import (
    FRESH,
    NO_INDEX,
    NO_TERM,
    Entry,
    EntryKind,
    HardState,
    LogIndex,
    Membership,
    MembershipAt,
    Restart,
    Snapshot,
    SyncToken,
    Term,
)
from kafkaesque.model.ids import MemberId


@dataclass
class Image:
    """The contents of a disk."""

    snapshot: Snapshot
    hard_state: HardState = FRESH
    entries: list[Entry] = field(default_factory=list)

    @property
    def last_index(self) -> LogIndex:
        return LogIndex(self.snapshot.index + len(self.entries))

    def entry(self, index: LogIndex) -> Entry:
        return self.entries[index - self.snapshot.index - 1]

    def term_at(self, index: LogIndex) -> Term:
        return self.snapshot.term if index == self.snapshot.index else self.entry(index).term

    def holds(self, index: LogIndex, term: Term) -> bool:
        if index < self.snapshot.index:
            return True
        return index <= self.last_index and self.term_at(index) == term

    def copy(self) -> Image:
        return Image(self.snapshot, self.hard_state, list(self.entries))

    def compact(self, snapshot: Snapshot) -> None:
        del self.entries[: snapshot.index - self.snapshot.index]
        self.snapshot = snapshot

    def apply(self, operation: object) -> None:
        match operation:
            case HardState():
                self.hard_state = operation
            case Snapshot():
                self.snapshot = operation
                self.entries = []
            case int():
                del self.entries[operation - self.snapshot.index - 1 :]
            case Entry():
                assert operation.index == self.last_index + 1
                self.entries.append(operation)
            case _:
                raise TypeError(operation)


def operations(ready: Ready) -> list[object]:
    """Applies a write in the order that Ready prescribes."""
    parts: list[object] = [ready.hard_state, ready.snapshot, ready.truncate_from, *ready.entries]
    return [part for part in parts if part is not None]


class Disk:
    def __init__(self, voters: tuple[MemberId, ...], learners: tuple[MemberId, ...] = ()) -> None:
        start = Snapshot(NO_INDEX, NO_TERM, Membership(voters, learners), "empty")
        self.durable = Image(start)
        self.written = Image(start)
        self.pending: list[tuple[SyncToken, list[object]]] = []

    @property
    def first_index(self) -> LogIndex:
        return LogIndex(self.written.snapshot.index + 1)

    @property
    def last_index(self) -> LogIndex:
        return self.written.last_index

    def term_at(self, index: LogIndex) -> Term:
        return self.written.term_at(index)

    def entries_between(self, first: LogIndex, last: LogIndex, size_bytes_max: int) -> list[Entry]:
        start = first - self.first_index
        chosen: list[Entry] = []
        size_bytes = 0
        for entry in self.written.entries[start : start + last - first + 1]:
            size_bytes += entry.size_bytes
            if chosen and size_bytes > size_bytes_max:
                break
            chosen.append(entry)
        return chosen

    def snapshot(self) -> Snapshot:
        return self.written.snapshot

    def write(self, ready: Ready) -> None:
        if ready.token is not None:
            todo = operations(ready)
            for operation in todo:
                self.written.apply(operation)
            self.pending.append((ready.token, todo))

    def sync(self, count: int | None = None) -> SyncToken | None:
        """Makes the oldest `count` writes durable. Returns the newest token among them."""
        count = len(self.pending) if count is None else count
        done, self.pending = self.pending[:count], self.pending[count:]
        for _, todo in done:
            for operation in todo:
                self.durable.apply(operation)
        return done[-1][0] if done else None

    def compact(self, snapshot: Snapshot) -> None:
        """Only applied, hence durable, entries are compacted."""
        self.written.compact(snapshot)
        self.durable.compact(snapshot)

    def crash(self, choose: Callable[[int], int]) -> None:
        """A prefix of the unsynced writes survives: `choose(n)` operations, sometimes without
        the hard states among them, which live in a file of their own."""
        todo = [operation for _, part in self.pending for operation in part]
        survivors = todo[: choose(len(todo) + 1)]
        keeps_hard_states = choose(2) == 0
        for operation in survivors:
            if keeps_hard_states or not isinstance(operation, HardState):
                self.durable.apply(operation)
        self.pending = []
        self.written = self.durable.copy()

    def restart(self, commit_index: LogIndex = NO_INDEX) -> Restart:
        start = self.durable.snapshot
        memberships = [MembershipAt(start.index, start.membership)]
        for entry in self.durable.entries:
            if entry.kind is EntryKind.MEMBERSHIP:
                assert isinstance(entry.payload, Membership)
                memberships.append(MembershipAt(entry.index, entry.payload))
        return Restart(self.durable.hard_state, memberships, commit_index, start.index)
