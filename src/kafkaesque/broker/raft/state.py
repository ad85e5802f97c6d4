"""The state of a node in its group that does not depend on its role, and the steps all roles share.

The rules of the roles are in `follower`, `candidate` and `leader`; messages that wait for a sync are
in `promises`. Nothing here decides who leads.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from kafkaesque.broker.raft.clock import ElectionClock, Jitter
from kafkaesque.broker.raft.config import RaftConfig
from kafkaesque.broker.raft.log_view import LogView
from kafkaesque.broker.raft.membership import MembershipHistory
from kafkaesque.broker.raft.messages import Message
from kafkaesque.broker.raft.ready import ReadReady
from kafkaesque.broker.raft.types import (
    NO_INDEX,
    NO_TERM,
    Entry,
    EntryKind,
    HardState,
    LogIndex,
    Membership,
    RaftLog,
    Restart,
    Role,
    Snapshot,
    SyncToken,
    Term,
)
from kafkaesque.broker.raft.write_tracker import WriteTracker
from kafkaesque.model.errors import InvariantBroken, check
from kafkaesque.model.ids import MemberId


class Become(NamedTuple):
    """Returned by a rule that demands a change of role; `transitions` carries it out."""

    role: Role
    is_handover: bool = False


class State:
    """One node in one group."""

    __slots__ = (
        "clock",
        "commit_index",
        "config",
        "durability",
        "is_quiesced",
        "is_term_confirmed",
        "leader_id",
        "log",
        "matched_index",
        "members",
        "node_id",
        "outbox",
        "reads",
        "term",
        "vote",
    )

    def __init__(
        self, node_id: MemberId, config: RaftConfig, log: RaftLog, restart: Restart, jitter: Jitter
    ) -> None:
        self.node_id = node_id
        self.config = config
        self.log = LogView(log)
        self.members = MembershipHistory(restart.memberships)
        self.durability = WriteTracker(restart.hard_state)
        self.term, self.vote = restart.hard_state
        """The term never decreases; within a term one vote is given."""
        if self.log.last_term > self.term:
            # The log reached the disk but the term did not: nothing was sent in that term.
            self.term, self.vote = self.log.last_term, None
        self.leader_id: MemberId | None = None
        """The leader of this term; None while unknown."""
        start = LogIndex(self.log.first_index - 1)
        self.commit_index = max(start, min(restart.commit_index, self.log.last_index))
        """first_index - 1 <= commit_index <= last_index. Never decreases."""
        self.is_term_confirmed = (
            self.term > NO_TERM and self.log.term_at(self.commit_index) == self.term
        )
        """An entry of this term is committed: from then on its commit index is reliable (Raft 8)."""
        self.matched_index = self.commit_index
        """Our log equals that of this term's leader up to here: commit_index <= matched_index <=
        last_index. Committed entries are in every leader's log (Raft 5.4.3), so a new term starts
        there. Unused on a leader."""
        self.is_quiesced = False
        """The group is idle and no clock runs until something wakes it. commit_index == last_index"""
        self.outbox: list[Message] = []
        """Messages that may be sent whatever is on disk."""
        self.reads: list[ReadReady] = []
        self.clock = ElectionClock(config.election_timeout_ticks, jitter)
        if config.lease_reads and self.term > 0:
            # Before the restart this node may have granted a lease: it must not vote for a while.
            self.clock.since_leader_ticks = 0

    @property
    def hard_state(self) -> HardState:
        return HardState(self.term, self.vote)

    @property
    def is_hard_state_durable(self) -> bool:
        durable = self.durability.hard_state
        return durable.term == self.term and durable.vote == self.vote

    @property
    def membership(self) -> Membership:
        return self.members.current

    @property
    def is_voter(self) -> bool:
        return self.node_id in self.membership.voters

    @property
    def is_sole_voter(self) -> bool:
        """This node is the only member; there are no learners either."""
        membership = self.members.current
        return not membership.learners and membership.voters == (self.node_id,)

    @property
    def can_campaign(self) -> bool:
        is_eligible = self.members.may_campaign(self.node_id, self.commit_index)
        return is_eligible and not self.log.is_installing

    @property
    def hears_leader(self) -> bool:
        """While true, votes are refused (thesis 4.2.3 and 6.4.1). A leader counts as hearing itself:
        one that has lost its majority notices within an election timeout."""
        return self.leader_id == self.node_id or self.clock.hears_leader

    def enter_term(self, term: Term, vote: MemberId | None) -> None:
        """Starts a new term. Answers owed in older terms are void."""
        check(term > self.term, f"term {term} after {self.term}")
        self.term, self.vote = term, vote
        self.leader_id = None
        self.is_term_confirmed = False
        self.matched_index = self.commit_index

    def append(self, entries: Sequence[Entry]) -> None:
        """Appends to the log. A new membership takes effect at once, committed or not."""
        self.log.append(entries)
        for entry in entries:
            if entry.kind is EntryKind.MEMBERSHIP:
                if not isinstance(entry.payload, Membership):
                    raise InvariantBroken(f"membership entry {entry.index} has no membership")
                self.members.append(entry.index, entry.payload)

    def truncate_from(self, index: LogIndex) -> None:
        check(index > self.commit_index, f"committed entry {index} would be truncated")
        check(index > self.matched_index, f"entry {index} of this term's leader would be truncated")
        self.log.truncate_from(index)
        self.members.truncate_from(index)
        self.durability.clip(LogIndex(index - 1))

    def install(self, snapshot: Snapshot) -> None:
        check(snapshot.index > self.commit_index, "a snapshot of the past")
        self.log.install(snapshot)
        self.members.reset(snapshot.index, snapshot.membership)
        self.durability.forget_log()
        self.commit_index = self.matched_index = snapshot.index
        self.is_term_confirmed = snapshot.term == self.term

    def commit_to(self, index: LogIndex) -> bool:
        """Advances the commit index; False if it is there already."""
        if index <= self.commit_index:
            return False
        check(index <= self.log.last_index, f"commit {index} beyond the log")
        self.commit_index = index
        self.matched_index = max(self.matched_index, index)
        if not self.is_term_confirmed:
            self.is_term_confirmed = self.log.term_at(index) == self.term
        return True

    def confirm(self, token: SyncToken) -> None:
        """All Readies up to `token` are durable."""
        for write in self.durability.confirm(token):
            if write.snapshot_index > NO_INDEX:
                self.log.snapshot_is_durable(write.snapshot_index)
            self.log.is_durable_to(write.last_index)

    def validate(self) -> None:
        self.log.validate()
        self.members.validate()
        check(self.log.first_index - 1 <= self.commit_index, "the log starts above the commit")
        check(self.commit_index <= self.matched_index <= self.log.last_index, "commit <= matched")
        check(self.durability.hard_state.term <= self.term, "the disk is in a later term")
        check(self.log.last_term <= self.term, "an entry of a later term")
        check(self.leader_id != self.node_id or self.vote == self.node_id, "leads without own vote")
        check(
            not self.is_quiesced or self.commit_index == self.log.last_index,
            "quiesced with uncommitted entries",
        )
