"""Invariants of logs: what they contain and what is never removed (Raft figure 3)."""

from __future__ import annotations

from kafkaesque.broker.raft.types import (
    NO_INDEX,
    EntryKind,
    LogIndex,
    Membership,
    Role,
    Snapshot,
    Term,
)
from kafkaesque.lab.sim.checkers.base import Checker
from kafkaesque.lab.sim.ground_truth import EntryFact, require
from kafkaesque.lab.sim.view import ReplicaView
from kafkaesque.model.ids import GroupId, MemberId


class LogMatching(Checker):
    """An index and a term identify one entry, with one predecessor, at one offset."""

    def writes(self, view: ReplicaView, index: LogIndex, term: Term, fact: EntryFact) -> None:
        known = view.group.entries.setdefault((index, term), fact)
        require(known == fact, "log matching", f"{view} {index}@{term}: {fact} is not {known}")

    def opened(self, view: ReplicaView) -> None:
        """Recovery finds entries at the index and offset at which they were written."""
        entries, group = view.entries, view.group
        for number in range(entries.first_index, entries.last_index + 1):
            index = LogIndex(number)
            fact = group.entries.get((index, entries.term_at(index)))
            require(
                fact is not None, "log matching", f"{view} found an entry at {index} never written"
            )
            if fact is not None:
                end = entries.end_offset_of(index)
                text = f"{view} found {index} to end at {end}, not {fact.end_offset}"
                require(end == fact.end_offset, "log matching", text)


class LeaderAppendOnly(Checker):
    def cuts(self, view: ReplicaView, index: LogIndex) -> None:
        is_leader = view.raft.leadership.role is Role.LEADER
        require(not is_leader, "leader append-only", f"{view} cuts its log at {index}")


class CommittedNeverCut(Checker):
    """A committed entry stays in every log that has it, unless retention drops it."""

    def cuts(self, view: ReplicaView, index: LogIndex) -> None:
        committed = view.group.committed
        for number in range(index, min(view.truth.last_index + 1, len(committed))):
            is_safe = view.truth.terms.get(LogIndex(number)) != committed[number].term
            require(is_safe, "committed never cut", f"{view} cuts entry {number}")


class EpochStamped(Checker):
    """A batch's leader epoch is the term of its entry; epochs never fall along a log."""

    def wrote(self, view: ReplicaView, index: LogIndex, term: Term, fact: EntryFact) -> None:
        require(term >= fact.previous_term, "epoch stamped", f"{view}: the epoch falls at {index}")
        if fact.kind is EntryKind.DATA and fact.is_batch:
            epoch = int(view.entries.log.epoch_at(fact.base_offset))
            require(epoch == term, "epoch stamped", f"{view} {index}@{term} is stamped {epoch}")


class BatchWaitsForControl(Checker):
    """A batch is written only when all control entries before it are durable. Without them
    recovery could not derive the indexes of batches (replication/entry_log)."""

    def __init__(self) -> None:
        self._last: dict[tuple[MemberId, GroupId], LogIndex] = {}

    def wrote(self, view: ReplicaView, index: LogIndex, term: Term, fact: EntryFact) -> None:
        key = (view.member, view.group.group)
        last = self._last.get(key, NO_INDEX)
        if not fact.is_batch:
            self._last[key] = index
        elif index <= last:
            self._last[key] = NO_INDEX  # truncated since; a batch has this index now
        elif last > NO_INDEX and last in view.truth.terms:
            text = f"{view} writes {index}, control entry {last} is not durable"
            require(view.truth.is_durable(last), "batch waits for control", text)


class OneChangeAtATime(Checker):
    """A leader changes the membership by one voter, and only after the previous change is committed."""

    def writes(self, view: ReplicaView, index: LogIndex, term: Term, fact: EntryFact) -> None:
        if fact.kind is not EntryKind.MEMBERSHIP:
            return
        new = fact.identity[0]
        changes = view.group.membership_changes
        state = view.state
        if isinstance(new, Membership):
            changes.add((index, term))
            is_own = view.raft.leadership.role is Role.LEADER and state.term == term
            # Only changes in this log: another log may have a change where this one has a batch.
            before = [i for i, t in changes if i < index and view.truth.terms.get(i) == t]
            if is_own and before and (index, term) not in view.group.entries:
                last = max(before)
                text = f"{view}: {last} and {index} are both uncommitted"
                require(last <= state.commit_index, "one change at a time", text)


class SnapshotAtLogStart(Checker):
    """A log starts after a committed entry, and records the term of that entry correctly."""

    def opened(self, view: ReplicaView) -> None:
        self._check(view, view.entries.snapshot())

    def installed(self, view: ReplicaView, snapshot: Snapshot) -> None:
        self._check(view, snapshot)

    def _check(self, view: ReplicaView, snapshot: Snapshot) -> None:
        committed = view.group.committed
        is_known = snapshot.index < len(committed)
        require(is_known, "snapshot at log start", f"{view}: {snapshot.index} is not committed")
        term = committed[snapshot.index].term
        text = f"{view}: {snapshot.index} has term {term}, not {snapshot.term}"
        require(term == snapshot.term, "snapshot at log start", text)
