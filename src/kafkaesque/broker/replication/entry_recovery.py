"""Recovery of a group after a crash: reconciles log and journal, and cuts the torn tail.

Each of the two may have lost some of its unsynced tail. Recovery keeps the longest prefix in which
every batch has the control entries before it, and every control entry the batches before it.
Batches that are known to be durable are never cut: if they do not fit, the log is damaged.
"""

from __future__ import annotations

import logging
from bisect import bisect_right

from kafkaesque.broker.raft.types import LogIndex
from kafkaesque.broker.replication.entry_index import EntryIndex
from kafkaesque.broker.replication.entry_map import EntryMap
from kafkaesque.broker.replication.raft_journal import RaftJournal
from kafkaesque.broker.replication.rules.journal_records import GroupFacts
from kafkaesque.broker.storage.log import Log
from kafkaesque.model.errors import CorruptMessage
from kafkaesque.model.ids import NO_EPOCH, GroupId, Offset

_log = logging.getLogger("kafkaesque.broker.replication")


def recover(group: GroupId, log: Log, journal: RaftJournal, entries: EntryMap) -> LogIndex:
    """Makes log, journal and `entries` agree. Returns the index of the last entry. Blocking."""
    facts = journal.facts(group)
    if facts is None:
        raise CorruptMessage(f"group {group} is not in the journal")
    if journal.needs_sync:
        # A group may be opened again while the journal has unsynced records. Sync first: a log must
        # not be cut because of a record that a crash could still undo.
        journal.sync()
    if facts.is_resetting:
        _log.warning("%s: completing an interrupted reset", log.directory)
        if not facts.start.is_kept:
            entries.clear()
            log.reset_to(facts.start.offset)
        journal.reset_done(group)
    _EntryRecovery(group, log, journal, facts, entries).run()
    entries.delete_orphans()
    last_control = facts.control[-1].index if facts.control else facts.start.index
    return max(last_control, entries.last_batch_index())


class _EntryRecovery:
    """Recovery of a group that is not being reset."""

    def __init__(
        self,
        group: GroupId,
        log: Log,
        journal: RaftJournal,
        facts: GroupFacts,
        entries: EntryMap,
    ) -> None:
        self._group = group
        self._log = log
        self._journal = journal
        self._facts = facts
        self._entries = entries
        self._durable_offset = log.synced_offset
        """Taken at the start, because every cut or deletion here syncs the log."""

    def run(self) -> None:
        start = self._facts.start.offset
        if not self._has_batches():
            self._cut_controls()
            return
        self._cut_foreign_terms()
        self._count()
        self._cut_controls()
        if not self._entries.is_consistent():
            _log.error(
                "%s: entry files do not match the journal; recounting all entries",
                self._log.directory,
            )
            self._entries.load_all()
            if not self._entries.is_consistent():
                raise CorruptMessage(f"{self._log.directory} lacks batches that the journal counts")
        if self._log.log_start_offset < start and not self._facts.start.is_kept:
            self._log.delete_before(start)

    def _has_batches(self) -> bool:
        """Returns whether the log has batches at the start that the journal names. If not, makes
        the log begin there."""
        log, start = self._log, self._facts.start.offset
        segments = [segment for segment in log.segments if segment.base_offset >= start]
        has_batches = any(segment.size_bytes > 0 for segment in segments)
        if has_batches and segments[0].base_offset == start:
            return True
        if self._durable_offset > start:
            raise CorruptMessage(f"{log.directory} has lost its batches from offset {start} on")
        if self._facts.start.is_kept:
            self._end_at_folded(start)
        elif has_batches or len(segments) != 1 or log.log_end_offset != start:
            self._entries.clear()
            log.reset_to(start)
        return False

    def _end_at_folded(self, start: Offset) -> None:
        """Only compacted batches, which are not entries, are left in the log. They stay."""
        log = self._log
        log.truncate_to(start)
        if log.log_end_offset < start:
            raise CorruptMessage(f"{log.directory} has lost batches before offset {start}")
        self._entries.clear()
        if log.active_base_offset != start:
            log.roll()

    def _cut_foreign_terms(self) -> None:
        """Cuts batches of a term whose first entry the journal does not have at that offset."""
        log = self._log
        offset = max(log.log_start_offset, self._facts.start.offset)
        offsets = [entry.offset for entry in self._facts.control]
        while offset < log.log_end_offset:
            epoch, term = log.epoch_at(offset), self._entries.term_at_offset(offset)
            if epoch not in (NO_EPOCH, term):
                self._cut(offset, f"term {epoch} at offset {offset} is {term} in the journal")
                return
            epoch_end = log.log_end_offset if epoch == NO_EPOCH else log.epoch_end(epoch)[1]
            number = bisect_right(offsets, offset)
            offset = min(epoch_end, offsets[number]) if number < len(offsets) else epoch_end

    def _count(self) -> None:
        """Finds the end of the log, starting from the last batches with known indexes."""
        entries = self._entries
        previous: EntryIndex | None = None
        for segment in entries.load_tail(self._durable_offset):
            if previous is not None:
                entries.expect(segment, previous)
                if segment.base_offset != previous.end_offset:
                    # The file survived the crash, but the end of the previous segment did not.
                    self._cut(previous.end_offset, f"{segment.base_offset} does not follow")
                    entries.forget_after(previous)
                    return
            damage = entries.complete(segment)
            if damage is not None:
                self._cut(segment.end_offset, str(damage))
                entries.forget_after(segment)
                return
            previous = segment
        if previous is not None and previous.end_offset < self._log.log_end_offset:
            self._cut(previous.end_offset, "no batch follows")

    def _cut_controls(self) -> None:
        """Cuts control entries that come after batches that are missing."""
        end_offset = self._log.log_end_offset
        for entry in self._facts.control:
            if entry.offset > end_offset:
                _log.warning(
                    "%s ends at offset %d: cut control entries from index %d (offset %d) on",
                    *(self._log.directory, end_offset, entry.index, entry.offset),
                )
                self._journal.cut_from(self._group, entry.index)
                return

    def _cut(self, offset: Offset, reason: str) -> None:
        if offset < self._durable_offset:
            raise CorruptMessage(f"{self._log.directory}: {reason}, and it was durable")
        _log.warning("%s: cut from offset %d on: %s", self._log.directory, offset, reason)
        self._log.truncate_to(offset)
