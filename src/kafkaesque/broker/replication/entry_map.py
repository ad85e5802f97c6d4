"""Maps Raft indexes to places in the log and back, for one group.

Batches and control entries share one sequence of indexes. The journal records the index of each
control entry, so an entry file only numbers the batches of its segment: the n-th batch of a segment
has the index of its first batch, plus n, plus the control entries in between.

Segments are loaded lazily, from the end: at first only the last ones, perhaps none. A lookup before
the first loaded segment loads all others, from their entry files or, if a file is unusable, from
the headers of the batches.
"""

from __future__ import annotations

import logging
import sys
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import NamedTuple, TypeVar

from kafkaesque.broker.raft.types import LogIndex, Term
from kafkaesque.broker.replication.entry_index import (
    BLOCK_ENTRIES,
    POSITION_MASK,
    EntriesDamaged,
    EntryIndex,
    Run,
    list_indexes,
)
from kafkaesque.broker.replication.rules.journal_records import ControlEntry, GroupFacts, index_of
from kafkaesque.broker.storage.log import Log
from kafkaesque.model.errors import CorruptMessage, StorageFailed, check
from kafkaesque.model.ids import Offset

_log = logging.getLogger("kafkaesque.broker.replication")

_first_index = attrgetter("first_index")
_base_offset = attrgetter("base_offset")
_offset = attrgetter("offset")
Found = TypeVar("Found")


class Place(NamedTuple):
    """A batch: its segment and its number within the segment."""

    segment: EntryIndex
    number: int


class EntryMap:
    """Finds the batches of one log by index and by offset."""

    __slots__ = ("_control", "_facts", "_is_whole", "_log", "_segments")

    def __init__(self, log: Log, facts: GroupFacts) -> None:
        self._log = log
        self._facts = facts
        self._control = facts.control
        self._segments: list[EntryIndex] = []
        """The loaded segments, by offset: always the last ones of the log."""
        self._is_whole = False

    # -- counting --------------------------------------------------------------------------------

    def _skip(self, first_index: LogIndex, count: int) -> LogIndex:
        """Returns the index of the batch that comes `count` batches after the one at
        `first_index`."""
        control = self._control
        start = low = bisect_left(control, first_index, key=index_of)
        high = len(control)
        while low < high:
            middle = (low + high) // 2
            batches = control[middle].index - first_index - (middle - start)
            if batches <= count:
                low = middle + 1
            else:
                high = middle
        return LogIndex(first_index + count + low - start)

    def _count(self, first_index: LogIndex, index: LogIndex) -> int:
        """Returns the number of batches from the one at `first_index` up to `index`, exclusive."""
        control = self._control
        start = bisect_left(control, first_index, key=index_of)
        return index - first_index - (bisect_left(control, index, key=index_of) - start)

    def index_after(self, segment: EntryIndex) -> LogIndex:
        """Returns the index of the batch after the last one of `segment`, whether or not it
        exists."""
        return self._skip(segment.first_index, segment.count)

    def last_batch_index(self) -> LogIndex:
        """Returns the index of the last loaded batch, or of the log's start if there is none."""
        for segment in reversed(self._segments):
            if segment.count:
                return self._skip(segment.first_index, segment.count - 1)
        return self._facts.start.index

    def control_at(self, index: LogIndex) -> ControlEntry | None:
        control = self._control
        if not control or index > control[-1].index:
            return None
        entry = control[bisect_left(control, index, key=index_of)]
        return entry if entry.index == index else None

    def batches_at(self, index: LogIndex) -> int:
        """Returns how many indexes, from `index` on, may be batches before the next control
        entry."""
        number = bisect_left(self._control, index, key=index_of)
        return self._control[number].index - index if number < len(self._control) else sys.maxsize

    def term_at(self, index: LogIndex) -> Term:
        """Returns the entry's term. Every term begins with a control entry, so the last control
        entry at or before `index` has it."""
        control = self._control
        if control and control[-1].index <= index:
            return control[-1].term
        number = bisect_right(control, index, key=index_of)
        return control[number - 1].term if number else self._facts.start.term

    def term_at_offset(self, offset: Offset) -> Term:
        """Returns the term of the batch at `offset`."""
        number = bisect_right(self._control, offset, key=_offset)
        return self._control[number - 1].term if number else self._facts.start.term

    def controls_at(self, offset: Offset) -> int:
        """Returns the number of control entries between the last batch before `offset` and
        `offset`."""
        count = 0
        for entry in reversed(self._control):
            if entry.offset < offset:
                break
            count += entry.offset == offset
        return count

    # -- looking up ------------------------------------------------------------------------------

    def place_of(self, index: LogIndex) -> Place:
        """Locates the batch at `index`."""
        if not self._is_whole and (not self._segments or index < self._segments[0].first_index):
            self.load_all()
        number = bisect_right(self._segments, index, key=_first_index) - 1
        check(number >= 0, f"entry {index} is not in {self._log.directory}")
        segment = self._segments[number]
        return Place(segment, self._count(segment.first_index, index))

    def run_from(self, index: LogIndex) -> tuple[EntryIndex, Run]:
        """Returns batches of one segment from the one at `index` on. Control entries are
        ignored."""
        place = self.place_of(index)
        run = self._query(place.segment, lambda s: s.run_from(self._log.files, place.number))
        return place.segment, run

    def offset_of(self, index: LogIndex) -> Offset:
        """Returns the base offset of the batch at `index`, or the log end offset for the next
        batch."""
        place = self.place_of(index)
        return self._query(place.segment, lambda s: s.base_of(self._log.files, place.number))

    def index_at(self, offset: Offset) -> LogIndex:
        """Returns the index of the batch that contains `offset`."""
        segment = self._segment_with(offset)
        number = self._query(segment, lambda s: s.find(self._log.files, offset))
        return self._skip(segment.first_index, number)

    def position_at(self, offset: Offset) -> tuple[Offset, Offset, int]:
        """Returns the base offset of the segment and of the batch that contains `offset`, and the
        batch's position in the segment file."""
        segment = self._segment_with(offset)
        number = self._query(segment, lambda s: s.find(self._log.files, offset))
        run = self._query(segment, lambda s: s.run_from(self._log.files, number))
        packed = run.packed[0]
        return segment.base_offset, segment.offset_of(packed), packed & POSITION_MASK

    def first_index_of(self, base_offset: Offset) -> LogIndex | None:
        """Returns the index of the segment's first batch; None if it has none."""
        segment = self._segment_with(base_offset)
        return segment.first_index if segment.base_offset == base_offset and segment.count else None

    def _segment_with(self, offset: Offset) -> EntryIndex:
        if not self._is_whole and (not self._segments or offset < self._segments[0].base_offset):
            self.load_all()
        return self._segments[bisect_right(self._segments, offset, key=_base_offset) - 1]

    def _query(self, segment: EntryIndex, query: Callable[[EntryIndex], Found]) -> Found:
        """Queries a segment. If its entry file is damaged, rebuilds the file first."""
        try:
            return query(segment)
        except EntriesDamaged as damage:
            _log.warning("%s: rebuilding it from the segment's headers", damage)
            self._restart(segment, segment.first_index)
            self._complete(segment)
            return query(segment)
        except OSError as error:
            raise StorageFailed(f"cannot read {segment.file.path}: {error}") from error

    # -- changing --------------------------------------------------------------------------------

    def active(self, next_index: LogIndex) -> EntryIndex:
        """Returns the active segment. `next_index` is the index of the next entry."""
        if not self._segments:
            self._load_last()
        if self.index_after(self._segments[-1]) != next_index:
            self.load_all()
        active = self._segments[-1]
        if self.index_after(active) != next_index:
            raise CorruptMessage(
                f"{self._log.directory} has fewer or more batches than its entry files count"
            )
        return active

    def forget_after(self, segment: EntryIndex) -> None:
        """Drops the segments after this one, in which the log was cut."""
        del self._segments[self._segments.index(segment) + 1 :]

    def is_consistent(self) -> bool:
        """Returns whether the last control entry is where the batches place it."""
        if not self._control or not self._segments:
            return True
        last = self._control[-1]
        if last.offset <= self._segments[0].base_offset:
            return self._is_whole or last.index < self._segments[0].first_index
        if last.offset < self._log.log_end_offset:
            return self.index_at(last.offset) == last.index + 1
        return self.last_batch_index() == last.index - self.controls_at(last.offset)

    def begin(self, base_offset: Offset, index: LogIndex) -> EntryIndex:
        """Starts a segment with the batch at `index`."""
        segments = self._segments
        if segments and segments[-1].base_offset == base_offset:
            segments.pop()
        if segments:
            segments[-1].seal(self._log.files)
        segments.append(EntryIndex(str(self._log.directory), base_offset, index))
        return segments[-1]

    def cut(self, index: LogIndex) -> None:
        """Durably removes the batches from the one at `index` on. Raises StorageFailed."""
        place = self.place_of(index)
        files = self._log.files
        try:
            while self._segments[-1] is not place.segment:
                self._segments[-1].delete(files)
                self._segments.pop()
            self._query(place.segment, lambda s: s.cut(files, place.number))
        except OSError as error:
            raise StorageFailed(f"cannot cut {place.segment.file.path}: {error}") from error

    def drop_before(self, base_offset: Offset) -> None:
        """Drops the segments before the one that begins at `base_offset`."""
        self._segment_with(base_offset)
        count = bisect_left(self._segments, base_offset, key=_base_offset)
        for segment in self._segments[:count]:
            try:
                segment.discard(self._log.files)
            except OSError as error:
                _log.warning("cannot delete %s: %s", segment.file.path, error)
        del self._segments[:count]

    def clear(self) -> None:
        """Durably removes all entry files because the log is reset. Raises StorageFailed."""
        directory, files = str(self._log.directory), self._log.files
        try:
            for facts in self._log.segments:
                EntryIndex(directory, facts.base_offset, LogIndex(0)).delete(files)
        except OSError as error:
            raise StorageFailed(f"cannot clear {directory}: {error}") from error
        self._segments = []
        self._is_whole = False

    def delete_orphans(self) -> None:
        """Durably removes the entry files of segments that recovery deleted: another segment may
        begin at the same offset. Raises StorageFailed."""
        directory, files = str(self._log.directory), self._log.files
        bases = {facts.base_offset for facts in self._log.segments}
        try:
            for base_offset in list_indexes(files, directory):
                if base_offset not in bases:
                    EntryIndex(directory, base_offset, LogIndex(0)).delete(files)
        except OSError as error:
            raise StorageFailed(f"cannot clean {directory}: {error}") from error

    def close(self, *, clean: bool) -> None:
        for segment in self._segments:
            if clean:
                segment.seal(self._log.files)
            self._log.files.forget(segment.file)

    # -- loading ----------------------------------------------------------------------------------

    def _bases(self) -> Sequence[tuple[Offset, int]]:
        """Returns base offset and size of each segment that contains entries."""
        start = self._facts.start.offset
        return [(s.base_offset, s.size_bytes) for s in self._log.segments if s.base_offset >= start]

    def _load(self, base_offset: Offset, size_bytes: int) -> EntryIndex | None:
        """Loads a segment's entry file. None if it is unusable or cannot be read."""
        limit = size_bytes, self._log.log_end_offset
        directory = str(self._log.directory)
        try:
            return EntryIndex.load(self._log.files, directory, base_offset, limit)
        except OSError as error:
            _log.warning("cannot read the entries of %s: %s", directory, error)
            return None

    def _load_last(self) -> None:
        """Loads the active segment if its file is complete, as after a clean stop; otherwise loads
        all."""
        base_offset, size_bytes = self._bases()[-1]
        segment = self._load(base_offset, size_bytes) if size_bytes else None
        if segment is None or segment.end_position != size_bytes:
            self.load_all()
        else:
            self._segments = [segment]

    def load_all(self) -> None:
        """Loads every segment, and checks that each follows the one before it."""
        segments: list[EntryIndex] = []
        known = {segment.base_offset: segment for segment in self._segments}
        expected = self._first_expected()
        for base_offset, size_bytes in self._bases():
            segment = known.get(base_offset) or self._load(base_offset, size_bytes)
            if segment is None or segment.first_index != expected:
                segment = self._reset_segment(base_offset, expected)
            self._complete(segment)
            if segments and base_offset != segments[-1].end_offset:
                raise CorruptMessage(f"{self._log.directory} has a gap before offset {base_offset}")
            segments.append(segment)
            expected = self.index_after(segment)
        self._segments = segments
        self._is_whole = True

    def load_tail(self, durable_offset: Offset) -> list[EntryIndex]:
        """Loads the last segments, back to the first one with a usable entry file that begins at or
        before `durable_offset`: a crash cannot have lost anything before that offset.

        The caller completes them, in order.
        """
        bases = self._bases()
        segments: list[EntryIndex] = []
        for base_offset, size_bytes in reversed(bases):
            segment = self._load(base_offset, size_bytes)
            segments.append(segment or self._reset_segment(base_offset, self._first_expected()))
            if segment is not None and base_offset <= durable_offset:
                break
        self._is_whole = len(segments) == len(bases)
        self._segments = segments[::-1]
        return self._segments

    def expect(self, segment: EntryIndex, previous: EntryIndex) -> None:
        """Makes `segment` follow `previous`, whatever its file says."""
        first_index = self.index_after(previous)
        if segment.count == 0:
            segment.first_index = first_index
        elif segment.first_index != first_index:
            self._restart(segment, first_index)

    def _first_expected(self) -> LogIndex:
        """Returns the index of the first batch of the log."""
        start = self._facts.start
        return LogIndex(start.index + 1 + self.controls_at(start.offset))

    def _reset_segment(self, base_offset: Offset, first_index: LogIndex) -> EntryIndex:
        """Returns a segment whose unusable entry file has been deleted. Raises StorageFailed."""
        segment = EntryIndex(str(self._log.directory), base_offset, first_index)
        self._restart(segment, first_index)
        return segment

    def complete(self, segment: EntryIndex) -> CorruptMessage | None:
        """Adds the batches that the entry file does not list. Stops at the first batch that does
        not belong there and returns the damage. Raises CorruptMessage if there is no header."""
        source = self._log.segment(segment.base_offset)
        if segment.end_position == source.size_bytes:
            return None
        files = self._log.files
        try:
            for position, header in source.headers(files, segment.end_position):
                wanted = segment.end_offset, int(self.term_at_offset(segment.end_offset))
                if (header.base_offset, header.leader_epoch) != wanted:
                    found = f"offset {header.base_offset} of term {header.leader_epoch}"
                    return source.damaged(position, f"{found} is not {wanted[0]} of {wanted[1]}")
                segment.append(header.size_bytes, header.next_offset)
                if len(segment.tail) % BLOCK_ENTRIES == 0:
                    segment.flush(files)
        except OSError as error:
            raise StorageFailed(f"cannot read {source.file.path}: {error}") from error
        return None

    def _complete(self, segment: EntryIndex) -> None:
        damage = self.complete(segment)
        if damage is not None:
            raise damage

    def _restart(self, segment: EntryIndex, first_index: LogIndex) -> None:
        """Discards the segment's entry file. Raises StorageFailed."""
        try:
            segment.restart(self._log.files, first_index)
        except OSError as error:
            raise StorageFailed(f"cannot write {segment.file.path}: {error}") from error
