"""The log on disk and the tail that is not yet on disk, as one log.

          storage                          tail
    |-----------------|  tail_first .. emitted_index | ... last_index |
     first_index ... durable_index     being written    not yet in a Ready

Entries leave the tail only when the driver confirms that they are durable. Until then they are sent
to followers from memory; storage is read only for durable entries.
"""

from __future__ import annotations

from collections.abc import Sequence

from kafkaesque.broker.raft.types import NO_INDEX, NO_TERM, Entry, LogIndex, RaftLog, Snapshot, Term
from kafkaesque.model.errors import check


class LogView:
    """Storage and tail as one log."""

    __slots__ = (
        "_base_term",
        "_emitted_index",
        "_snapshot",
        "_storage",
        "_tail",
        "_tail_first",
        "_truncate_from",
    )

    def __init__(self, storage: RaftLog) -> None:
        self._storage = storage
        self._tail: list[Entry] = []
        """Indexes ascend by one from `_tail_first`; terms never decrease."""
        self._tail_first = LogIndex(storage.last_index + 1)
        """Everything below is in storage, or covered by `_snapshot`."""
        self._base_term = storage.term_at(storage.last_index) if storage.last_index else NO_TERM
        """The term of the entry before `_tail_first`, which is read most often."""
        self._emitted_index = storage.last_index
        """Readies contained all up to here. _tail_first - 1 <= _emitted_index <= last_index"""
        self._truncate_from: LogIndex | None = None
        """The driver must truncate from here before it appends; what it got beyond is void."""
        self._snapshot: Snapshot | None = None
        """Being installed: all of storage is void. _snapshot.index < _tail_first"""

    @property
    def first_index(self) -> LogIndex:
        if self._snapshot is not None:
            return LogIndex(self._snapshot.index + 1)
        return self._storage.first_index

    @property
    def last_index(self) -> LogIndex:
        return LogIndex(self._tail_first + len(self._tail) - 1)

    @property
    def last_term(self) -> Term:
        return self._tail[-1].term if self._tail else self._base_term

    @property
    def durable_index(self) -> LogIndex:
        """All up to here is on our disk. 0 while a snapshot is being installed."""
        return NO_INDEX if self._snapshot is not None else LogIndex(self._tail_first - 1)

    @property
    def is_installing(self) -> bool:
        return self._snapshot is not None

    def snapshot(self) -> Snapshot:
        return self._storage.snapshot()

    def term_at(self, index: LogIndex) -> Term | None:
        """None for an entry that is not in the log: dropped at its start, or beyond its end."""
        if index >= self._tail_first:
            position = index - self._tail_first
            return self._tail[position].term if position < len(self._tail) else None
        if index == self._tail_first - 1:
            return self._base_term
        return self._storage.term_at(index) if index >= self.first_index - 1 else None

    def matches(self, index: LogIndex, term: Term) -> bool:
        """By the Log Matching property, one comparison covers all entries before it."""
        return self.term_at(index) == term

    def is_up_to_date(self, last_index: LogIndex, last_term: Term) -> bool:
        """Whether a log that ends there has every entry committed in ours (Raft 5.4.1)."""
        return (last_term, last_index) >= (self.last_term, self.last_index)

    def last_index_within_term(self, last: LogIndex, term: Term) -> LogIndex:
        """The greatest index up to `last` whose term is at most `term`, by bisection (terms never
        decrease). If the search reaches the log's start, or `last` is below it, that is the result."""
        high = min(last, self.last_index)
        low = min(high, LogIndex(self.first_index - 1))
        while low < high:
            middle = LogIndex((low + high + 1) // 2)
            if (self.term_at(middle) or NO_TERM) <= term:
                low = middle
            else:
                high = LogIndex(middle - 1)
        return low

    def entries_from(self, first: LogIndex, size_bytes_max: int) -> tuple[Entry, ...]:
        """The entries of one Append: from `first` on, at least one if there is one."""
        if first < self._tail_first:
            last = LogIndex(self._tail_first - 1)
            return tuple(self._storage.entries_between(first, last, size_bytes_max))
        position = first - self._tail_first
        size_bytes = 0
        for end in range(position, len(self._tail)):
            size_bytes += self._tail[end].size_bytes
            if size_bytes > size_bytes_max and end > position:
                return tuple(self._tail[position:end])
        return tuple(self._tail[position:])

    def append(self, entries: Sequence[Entry]) -> None:
        check(entries[0].index == self.last_index + 1, "entries leave a gap in the log")
        check(entries[0].term >= self.last_term, "terms decrease along the log")
        self._tail.extend(entries)

    @property
    def is_all_durable(self) -> bool:
        """Nothing remains to be emitted, written or synced."""
        return not self._tail and self._snapshot is None and self._truncate_from is None

    def append_durable(self, last_index: LogIndex, term: Term) -> None:
        """Adds entries that storage has already. All before them must be durable too."""
        check(self.is_all_durable and last_index >= self._tail_first, "appended after a gap")
        self._emitted_index = last_index
        self._tail_first = LogIndex(last_index + 1)
        self._base_term = term

    def truncate_from(self, index: LogIndex) -> None:
        """Removes the entries from `index` on, also those that the driver has."""
        check(self.first_index <= index <= self.last_index, "truncation outside the log")
        if index < self._tail_first:
            check(self._snapshot is None, "truncation into a snapshot")
            self._base_term = self.term_at(LogIndex(index - 1)) or NO_TERM
            self._tail.clear()
            self._tail_first = index
        else:
            del self._tail[index - self._tail_first :]
        if index <= self._emitted_index:
            self._emitted_index = LogIndex(index - 1)
            self._truncate_from = min(index, self._truncate_from or index)

    def install(self, snapshot: Snapshot) -> None:
        """Replaces the whole log with the snapshot."""
        check(snapshot.index > NO_INDEX, "a snapshot of nothing")
        self._snapshot = snapshot
        self._tail.clear()
        self._tail_first = LogIndex(snapshot.index + 1)
        self._base_term = snapshot.term
        self._emitted_index = NO_INDEX
        self._truncate_from = None

    def take_snapshot(self) -> Snapshot | None:
        """The snapshot that the driver must install, once."""
        if self._snapshot is None or self._emitted_index >= self._snapshot.index:
            return None
        self._emitted_index = self._snapshot.index
        return self._snapshot

    def take_truncation(self) -> LogIndex | None:
        index, self._truncate_from = self._truncate_from, None
        return index

    def take_entries(self) -> tuple[Entry, ...]:
        """The entries that the driver must append, after the two above."""
        if self._emitted_index == self.last_index:
            return ()
        entries = tuple(self._tail[self._emitted_index + 1 - self._tail_first :])
        self._emitted_index = self.last_index
        return entries

    def snapshot_is_durable(self, index: LogIndex) -> None:
        if self._snapshot is not None and self._snapshot.index == index:
            self._snapshot = None

    def is_durable_to(self, index: LogIndex) -> None:
        """The entries of the log up to `index` are on disk."""
        if index >= self._tail_first:
            check(index <= self._emitted_index, "durable before it was written")
            position = index - self._tail_first
            self._base_term = self._tail[position].term
            del self._tail[: position + 1]
            self._tail_first = LogIndex(index + 1)

    def validate(self) -> None:
        check(
            self._tail_first - 1 <= self._emitted_index or self.is_installing, "tail below emitted"
        )
        check(self._emitted_index <= self.last_index, "emitted beyond the log")
        check(self.first_index <= self._tail_first, "the tail starts before the log")
        term = self._base_term
        for position, entry in enumerate(self._tail):
            check(entry.index == self._tail_first + position, "a gap in the tail")
            check(entry.term >= term, "terms decrease along the tail")
            term = entry.term
