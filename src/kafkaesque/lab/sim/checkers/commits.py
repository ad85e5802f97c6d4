"""Invariants of commitment: what is committed, which disks hold it, and what nodes report about it."""

from __future__ import annotations

from kafkaesque.broker.raft.messages import AppendResponse, HeartbeatResponse, Message
from kafkaesque.broker.raft.quorum import majority
from kafkaesque.broker.raft.types import NO_INDEX, LogIndex, Role
from kafkaesque.lab.sim.checkers.base import Checker, end_offset_before
from kafkaesque.lab.sim.ground_truth import CommittedEntry, ReplicaTruth, require
from kafkaesque.lab.sim.view import ReplicaView
from kafkaesque.model.ids import MemberId, Offset


class StateMachineSafety(Checker):
    """No two nodes commit different entries at one index."""

    def commits(self, view: ReplicaView, first: LogIndex, last: LogIndex) -> None:
        log, committed = view.state.log, view.group.committed
        for number in range(max(first, log.first_index), last + 1):
            require(
                log.term_at(LogIndex(number)) == committed[number].term,
                "state machine safety",
                f"{view} commits another entry at {number}",
            )


class LeaderCommitsItsOwnTerm(Checker):
    """A leader counts replicas only for entries of its own term; earlier ones follow (Raft 5.4.2)."""

    def commits(self, view: ReplicaView, first: LogIndex, last: LogIndex) -> None:
        state = view.state
        if view.raft.leadership.role is Role.LEADER and last == state.commit_index:
            term = state.log.term_at(last)
            text = f"{view} leads term {state.term} and commits {last} of term {term}"
            require(term == state.term, "leader commits its own term", text)


class CommitNeverFalls(Checker):
    def steps(self, view: ReplicaView) -> None:
        text = f"{view}: {view.truth.commit_index} to {view.state.commit_index}"
        require(view.state.commit_index >= view.truth.commit_index, "commit never falls", text)


class MajorityHoldsWhatIsCommitted(Checker):
    """When an entry is committed, it is on the disks of a majority of the voters."""

    def __init__(self, replicas: dict[tuple[MemberId, int], ReplicaTruth]) -> None:
        self._replicas = replicas

    def newly_committed(
        self, view: ReplicaView, index: LogIndex, committed: CommittedEntry
    ) -> None:
        voters = view.raft.membership.voters
        holders = []
        for voter in voters:
            truth = self._replicas.get((voter, view.group.group))
            if truth is not None and truth.holds(index, committed.term):
                holders.append(voter)
        require(
            len(holders) >= majority(len(voters)),
            "majority holds what is committed",
            f"{view}: {index}@{committed.term} is only on {holders} of {voters}",
        )


class AcknowledgedIsOnDisk(Checker):
    """Entries that a follower acknowledged are durable, and are found after a restart."""

    def sends(self, view: ReplicaView, message: Message) -> None:
        if not isinstance(message, AppendResponse | HeartbeatResponse):
            return
        truth = view.truth
        first = max(truth.promised + 1, view.entries.first_index)
        for number in range(first, message.match_index + 1):
            index = LogIndex(number)
            is_durable = index in truth.terms and truth.is_durable(index)
            text = f"{view} acknowledges {message.match_index}, entry {index} is not durable"
            require(is_durable, "acknowledged is on disk", text)
            truth.promised = index

    def opened(self, view: ReplicaView) -> None:
        entries, promised = view.entries, view.truth.promised
        text = f"{view} ends at {entries.last_index}, acknowledged {promised}"
        require(entries.last_index >= promised, "acknowledged is on disk", text)
        if entries.first_index <= promised:
            known, found = view.truth.terms.get(promised), entries.term_at(promised)
            text = f"{view}: {promised} was of term {known}, found {found}"
            require(known == found, "acknowledged is on disk", text)


class OffsetsAreDense(Checker):
    """The first record has offset 0, and neither elections nor membership changes leave a gap."""

    def newly_committed(
        self, view: ReplicaView, index: LogIndex, committed: CommittedEntry
    ) -> None:
        expected = end_offset_before(view.group, index)
        fact = committed.fact
        if fact is not None:
            text = f"{view}: {index} begins at {fact.base_offset}, not {expected}"
            require(fact.base_offset == expected, "offsets are dense", text)


class CommitIsKnownAfterRestart(Checker):
    """The commit index that a node restores at a restart is never ahead of the actual one."""

    def opened(self, view: ReplicaView) -> None:
        view.truth.commit_index = NO_INDEX
        hint = view.state.commit_index
        text = f"{view} starts with {hint}, committed is {view.group.committed_index}"
        require(hint <= view.group.committed_index, "commit is known after restart", text)


class TablesAgree(Checker):
    """Tables that have applied the same commands are equal, on every node and after every replay."""

    def __init__(self) -> None:
        self._at: dict[Offset, bytes] = {}

    def applied(self, offset: Offset, tables: bytes) -> None:
        known = self._at.setdefault(offset, tables)
        require(known == tables, "tables agree", f"they differ at offset {offset}")
