"""Membership, changed one server at a time (thesis 4.1 to 4.3).

A node uses the newest membership in its log, committed or not; if that entry is truncated, the one
before applies again. Any majority before a change of one voter and any majority after it overlap.
That is why only one change may be uncommitted, and why a new leader first commits an entry of its own
term (the error found in 2015: docs/RAFT.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import NamedTuple

from kafkaesque.broker.raft.types import NO_INDEX, LogIndex, Membership, MembershipAt, Refusal
from kafkaesque.model.errors import check
from kafkaesque.model.ids import MemberId


class ChangeKind(Enum):
    ADD_LEARNER = "add learner"
    PROMOTE = "promote"
    """A learner becomes a voter. There is no other way to become a voter."""
    DEMOTE = "demote"
    REMOVE = "remove"


class MembershipChange(NamedTuple):
    kind: ChangeKind
    node_id: MemberId


def changed(membership: Membership, change: MembershipChange) -> Membership | Refusal:
    """The membership after `change`, or why it is refused."""
    kind, node = change
    voters, learners = set(membership.voters), set(membership.learners)
    if kind is ChangeKind.ADD_LEARNER:
        if node in membership:
            return Refusal.NOTHING_TO_CHANGE
        learners.add(node)
    elif node not in membership:
        return Refusal.NO_SUCH_MEMBER
    elif (kind is ChangeKind.PROMOTE) == (node in voters) and kind is not ChangeKind.REMOVE:
        return Refusal.NOTHING_TO_CHANGE
    else:
        voters.discard(node)
        learners.discard(node)
        if kind is ChangeKind.PROMOTE:
            voters.add(node)
        elif kind is ChangeKind.DEMOTE:
            learners.add(node)
        if not voters:
            return Refusal.LAST_VOTER
    return Membership(tuple(sorted(voters)), tuple(sorted(learners)))


class MembershipHistory:
    """The memberships in the log, oldest first."""

    __slots__ = ("_history",)

    def __init__(self, history: Sequence[MembershipAt]) -> None:
        self._history = list(history) or [MembershipAt(NO_INDEX, Membership())]
        """Never empty; indexes ascend; at most one is above the commit index on a leader."""
        self.validate()

    @property
    def current(self) -> Membership:
        return self._history[-1].membership

    @property
    def index(self) -> LogIndex:
        """The entry that introduced the current membership."""
        return self._history[-1].index

    def may_campaign(self, node: MemberId, commit_index: LogIndex) -> bool:
        """A voter of the newest membership, or of the one before while the newest is uncommitted.

        A node that removed itself and lost its leadership before that was committed may have the
        longest log: then no other node can win, so it must be able to (thesis 4.2.2). Its own vote
        does not count.
        """
        if node in self.current.voters:
            return True
        return self.index > commit_index and node in self.at(LogIndex(self.index - 1)).voters

    def at(self, index: LogIndex) -> Membership:
        """The membership as of the entry at `index`, for a snapshot there."""
        for item in reversed(self._history):
            if item.index <= index:
                return item.membership
        return self._history[0].membership

    def append(self, index: LogIndex, membership: Membership) -> None:
        check(index > self.index, "memberships out of order")
        self._history.append(MembershipAt(index, membership))

    def truncate_from(self, index: LogIndex) -> None:
        while len(self._history) > 1 and self._history[-1].index >= index:
            self._history.pop()

    def forget_before(self, start_index: LogIndex) -> None:
        """The log now starts after `start_index`: keeps the membership as of there."""
        while len(self._history) > 1 and self._history[1].index <= start_index:
            del self._history[0]

    def reset(self, index: LogIndex, membership: Membership) -> None:
        self._history = [MembershipAt(index, membership)]

    def validate(self) -> None:
        indexes = [item.index for item in self._history]
        check(indexes == sorted(set(indexes)), "memberships out of order")
