"""Rules of those who want to lead: first ask whether anyone would vote (thesis 9.6), then vote.

The candidate's own vote counts, and its requests leave, only when vote and log are on its disk: a
request speaks for the log up to its end, and a candidate that crashed and forgot both could
otherwise collect votes for a log that it no longer has.
"""

from __future__ import annotations

from kafkaesque.broker.raft.messages import (
    Message,
    PreVote,
    PreVoteResponse,
    RequestVote,
    VoteResponse,
)
from kafkaesque.broker.raft.quorum import Verdict, verdict
from kafkaesque.broker.raft.state import Become, State
from kafkaesque.broker.raft.types import Role
from kafkaesque.model.errors import check
from kafkaesque.model.ids import MemberId


class _Contender:
    """What the two kinds of candidate share: counting answers, and trying again."""

    __slots__ = ("_state", "votes")

    role: Role
    next_role: Role

    def __init__(self, state: State) -> None:
        self._state = state
        self.votes: dict[MemberId, bool] = {}
        """Answers of this attempt, first one counts."""
        state.clock.restart()

    def tick(self) -> Become | None:
        return Become(Role.PRE_CANDIDATE) if self._state.clock.tick() else None

    def flush(self) -> None:
        pass

    def wake(self) -> None:
        pass

    def _count(self, node: MemberId, granted: bool) -> Become | None:
        self.votes.setdefault(node, granted)
        match verdict(self.votes, self._state.membership.voters):
            case Verdict.WON:
                return Become(self.next_role)
            case Verdict.LOST:
                return Become(Role.FOLLOWER)
            case Verdict.PENDING:
                return None

    def validate(self) -> None:
        check(self._state.leader_id is None, "a candidate that knows its leader")


class PreCandidate(_Contender):
    role = Role.PRE_CANDIDATE
    next_role = Role.CANDIDATE

    __slots__ = ()

    def ask(self) -> Become | None:
        state = self._state
        log = state.log
        for node in state.membership.voters:
            if node != state.node_id:
                state.outbox.append(
                    PreVote(state.node_id, node, state.term, log.last_index, log.last_term)
                )
        return self._count(state.node_id, granted=True)

    def step(self, message: Message) -> Become | None:
        if isinstance(message, PreVoteResponse):
            return self._count(message.sender, message.granted)
        return None

    def on_durable(self) -> Become | None:
        return None


class Candidate(_Contender):
    role = Role.CANDIDATE
    next_role = Role.LEADER

    __slots__ = ("_has_asked", "_is_handover")

    def __init__(self, state: State, *, is_handover: bool) -> None:
        super().__init__(state)
        self._is_handover = is_handover
        self._has_asked = False

    def step(self, message: Message) -> Become | None:
        if isinstance(message, VoteResponse):
            return self._count(message.sender, message.granted)
        return None

    def on_durable(self) -> Become | None:
        state = self._state
        log = state.log
        if self._has_asked or not state.is_hard_state_durable:
            return None
        check(log.durable_index == log.last_index, "the vote is on disk and the log before it not")
        self._has_asked = True
        for node in state.membership.voters:
            if node != state.node_id:
                state.outbox.append(
                    RequestVote(
                        state.node_id,
                        node,
                        state.term,
                        log.last_index,
                        log.last_term,
                        self._is_handover,
                    )
                )
        return self._count(state.node_id, granted=True)

    def validate(self) -> None:
        super().validate()
        check(self._state.vote == self._state.node_id, "a candidate votes for itself")
