"""Membership, changed one server at a time (thesis 4.1 to 4.3).

A node goes by the newest membership in its log, committed or not; if the entry is cut off, the one
before holds again. Any majority before a change of one voter and any majority after it have a node
in common; that is why the rules for proposing let only one change be uncommitted, and why a new
leader first commits an entry of its own term (the error found in 2015: docs/RAFT.md).
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
    """A learner becomes a voter. There is no other way to become one."""
    DEMOTE = "demote"
    REMOVE = "remove"


class MembershipChange(NamedTuple):
    kind: ChangeKind
    node_id: MemberId


def changed(membership: Membership, change: MembershipChange) -> Membership | Refusal:
    """The membership after `change`, or why it makes no sense."""
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
    """The memberships of the log, oldest first, from its start on: few, so a list."""

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
        """Where the current one came from."""
        return self._history[-1].index

    def may_stand(self, node: MemberId, commit_index: LogIndex) -> bool:
        """By the newest membership, or by the one before as long as the newest is uncommitted.

        A node that removed itself and lost its leadership before that was committed may hold the
        longest log: then nobody else can win, so it must be able to (thesis 4.2.2). Its own vote
        does not count.
        """
        if node in self.current.voters:
            return True
        return self.index > commit_index and node in self.at(LogIndex(self.index - 1)).voters

    def at(self, index: LogIndex) -> Membership:
        """As of the entry at `index`: what a snapshot there must carry."""
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
        """The log now starts after `start_index`: keep the membership as of there."""
        while len(self._history) > 1 and self._history[1].index <= start_index:
            del self._history[0]

    def reset(self, index: LogIndex, membership: Membership) -> None:
        self._history = [MembershipAt(index, membership)]

    def validate(self) -> None:
        indexes = [item.index for item in self._history]
        check(indexes == sorted(set(indexes)), "memberships out of order")
