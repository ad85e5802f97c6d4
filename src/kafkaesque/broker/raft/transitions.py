"""Terms, votes and roles: what a message's term means, and every transition between roles.

follower --timeout--> pre-candidate --majority would vote--> candidate --majority voted--> leader
   ^                       |                                    |                            |
   +---- leader of the term heard, a later term seen, election lost, majority not heard -----+
follower --TimeoutNow of the leader--> candidate
"""

from __future__ import annotations

from typing import TypeAlias

from kafkaesque.broker.raft.candidate import Candidate, PreCandidate
from kafkaesque.broker.raft.follower import Follower
from kafkaesque.broker.raft.leader import Leader
from kafkaesque.broker.raft.messages import (
    Append,
    AppendResponse,
    Heartbeat,
    HeartbeatResponse,
    InstallSnapshot,
    Message,
    PreVote,
    PreVoteResponse,
    RequestVote,
    TimeoutNow,
    VoteResponse,
)
from kafkaesque.broker.raft.promises import Promises
from kafkaesque.broker.raft.state import Become, State
from kafkaesque.broker.raft.types import NO_INDEX, NO_ROUND, Role, Term
from kafkaesque.model.errors import check
from kafkaesque.model.ids import MemberId

RoleRules: TypeAlias = Follower | PreCandidate | Candidate | Leader


class Transitions:
    """Owns the role and changes it."""

    __slots__ = ("_promises", "_state", "role")

    def __init__(self, state: State, promises: Promises) -> None:
        self._state = state
        self._promises = promises
        self.role: RoleRules = Follower(state, promises)

    @property
    def leader(self) -> Leader | None:
        """The rules of a leader, if this node leads."""
        return self.role if isinstance(self.role, Leader) else None

    def step(self, message: Message) -> None:
        if isinstance(message, PreVote):
            self._step_pre_vote(message)
        elif isinstance(message, RequestVote):
            self._step_vote(message)
        elif message.term < self._state.term:
            self._step_stale(message)
        else:
            self._step_current(message)

    def wakes(self, message: Message) -> bool:
        """Whether `message` wakes a quiesced group. A late answer to an earlier message does not; an
        answer that shows that a follower lags does."""
        if isinstance(message, HeartbeatResponse):
            return message.received_index < self._state.log.last_index
        return not isinstance(message, AppendResponse | PreVoteResponse | VoteResponse)

    def wake_leader(self, waker: MemberId | None = None) -> None:
        """This node woke, by a message from `waker` or by its driver. The leader is still quiesced
        and relies on our not voting, but our clock runs again: without a heartbeat we would soon vote
        for another. So we wake it."""
        state = self._state
        leader = state.leader_id
        if leader is not None and leader not in (state.node_id, waker):
            state.outbox.append(
                HeartbeatResponse(state.node_id, leader, state.term, NO_ROUND, NO_INDEX, NO_INDEX)
            )

    def follow(self, become: Become | None) -> None:
        """Changes roles until no rule demands another change."""
        while become is not None:
            become = self._enter(become)

    def _step_pre_vote(self, message: PreVote) -> None:
        if message.term > self._state.term and not self._state.hears_leader:
            self._enter_term(message.term)
        answer_pre_vote(self._state, message)

    def _step_vote(self, message: RequestVote) -> None:
        """A node that hears a leader neither votes nor adopts the term (thesis 4.2.3)."""
        state = self._state
        if message.term < state.term:
            state.outbox.append(
                VoteResponse(state.node_id, message.sender, state.term, granted=False)
            )
            return
        has_voted_so = message.term == state.term and state.vote == message.sender
        if state.hears_leader and not message.is_handover and not has_voted_so:
            return
        if message.term > state.term:
            self._enter_term(message.term)
        answer_vote(state, self._promises, message)

    def _step_stale(self, message: Message) -> None:
        """Informs a leader of an older term of ours; ignores all other messages of older terms."""
        state = self._state
        if isinstance(message, Append | Heartbeat | InstallSnapshot):
            state.outbox.append(
                HeartbeatResponse(
                    state.node_id, message.sender, state.term, NO_ROUND, NO_INDEX, NO_INDEX
                )
            )

    def _step_current(self, message: Message) -> None:
        if message.term > self._state.term:
            self._enter_term(message.term)
        if isinstance(message, Append | Heartbeat | InstallSnapshot | TimeoutNow):
            self._accept_leader(message.sender)
        self.follow(self.role.step(message))

    def _enter_term(self, term: Term) -> None:
        self._state.enter_term(term, None)
        self.follow(Become(Role.FOLLOWER))

    def _accept_leader(self, sender: MemberId) -> None:
        """The sender is the only leader of our term (Raft 5.2)."""
        state = self._state
        check(state.leader_id in (None, sender), f"two leaders in term {state.term}")
        if not isinstance(self.role, Follower):
            self.follow(Become(Role.FOLLOWER))
        state.leader_id = sender
        state.clock.heard_leader()

    def _enter(self, become: Become) -> Become | None:
        state = self._state
        state.is_quiesced = False
        match become.role:
            case Role.FOLLOWER:
                state.leader_id = None
                if not isinstance(self.role, Follower):
                    state.clock.restart()
                    self.role = Follower(state, self._promises)
                return None
            case Role.PRE_CANDIDATE:
                state.leader_id = None
                self.role = pre_candidate = PreCandidate(state)
                return pre_candidate.request_votes()
            case Role.CANDIDATE:
                state.enter_term(Term(state.term + 1), state.node_id)
                self.role = candidate = Candidate(state, is_handover=become.is_handover)
                return candidate.on_durable()
            case Role.LEADER:
                state.leader_id = state.node_id
                state.clock.forget_leader()
                self.role = leader = Leader(state)
                return leader.on_durable()


def answer_pre_vote(state: State, message: PreVote) -> None:
    """Answers whether we would vote; changes neither term nor vote and needs no sync (thesis 9.6)."""
    granted = (
        message.term >= state.term
        and not state.hears_leader
        and state.log.is_up_to_date(message.last_index, message.last_term)
    )
    state.outbox.append(PreVoteResponse(state.node_id, message.sender, state.term, granted))


def answer_vote(state: State, promises: Promises, message: RequestVote) -> None:
    """In our own term: grants one vote, to a candidate whose log is up to date (Raft 5.2, 5.4.1).

    A granted vote is owed until it is on disk. Whether we are a voter by our own log does not
    matter: the candidate may have a newer membership, and it counts the votes.
    """
    can_vote = state.vote == message.sender or (state.vote is None and state.leader_id is None)
    if can_vote and state.log.is_up_to_date(message.last_index, message.last_term):
        state.vote = message.sender
        state.clock.restart()
        promises.owe_vote()
        promises.release()
    else:
        state.outbox.append(VoteResponse(state.node_id, message.sender, state.term, granted=False))
