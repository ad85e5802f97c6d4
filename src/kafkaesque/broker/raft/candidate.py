"""Rules of a campaign: first ask whether a majority would vote (pre-vote, thesis 9.6), then elect.

The candidate's own vote counts, and its requests are sent, only when vote and log are on its disk. A
request vouches for the log up to its end: a candidate that crashed and lost both could otherwise
collect votes for a log that it no longer has.
"""

from __future__ import annotations

from kafkaesque.broker.raft.messages import (
    Message,
    PreVote,
    PreVoteResponse,
    RequestVote,
    VoteResponse,
)
from kafkaesque.broker.raft.quorum import VoteResult, vote_result
from kafkaesque.broker.raft.state import Become, State
from kafkaesque.broker.raft.types import Role
from kafkaesque.model.errors import check
from kafkaesque.model.ids import MemberId


class _Campaigner:
    """Common to both kinds of candidate: counting answers, and trying again."""

    __slots__ = ("_state", "votes")

    role: Role
    next_role: Role

    def __init__(self, state: State) -> None:
        self._state = state
        self.votes: dict[MemberId, bool] = {}
        """Answers in this attempt; the first of each node counts."""
        state.clock.restart()

    def tick(self) -> Become | None:
        return Become(Role.PRE_CANDIDATE) if self._state.clock.tick() else None

    def flush(self) -> None:
        pass

    def wake(self) -> None:
        pass

    def _count(self, node: MemberId, granted: bool) -> Become | None:
        self.votes.setdefault(node, granted)
        match vote_result(self.votes, self._state.membership.voters):
            case VoteResult.WON:
                return Become(self.next_role)
            case VoteResult.LOST:
                return Become(Role.FOLLOWER)
            case VoteResult.PENDING:
                return None

    def validate(self) -> None:
        check(self._state.leader_id is None, "a candidate with a known leader")


class PreCandidate(_Campaigner):
    role = Role.PRE_CANDIDATE
    next_role = Role.CANDIDATE

    __slots__ = ()

    def request_votes(self) -> Become | None:
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


class Candidate(_Campaigner):
    role = Role.CANDIDATE
    next_role = Role.LEADER

    __slots__ = ("_has_requested", "_is_handover")

    def __init__(self, state: State, *, is_handover: bool) -> None:
        super().__init__(state)
        self._is_handover = is_handover
        self._has_requested = False

    def step(self, message: Message) -> Become | None:
        if isinstance(message, VoteResponse):
            return self._count(message.sender, message.granted)
        return None

    def on_durable(self) -> Become | None:
        state = self._state
        log = state.log
        if self._has_requested or not state.is_hard_state_durable:
            return None
        check(
            log.durable_index == log.last_index, "the vote is on disk but the log before it is not"
        )
        self._has_requested = True
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
