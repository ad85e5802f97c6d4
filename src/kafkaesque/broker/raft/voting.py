"""How a node, whatever its role, answers those who want to lead."""

from __future__ import annotations

from kafkaesque.broker.raft.messages import PreVote, PreVoteResponse, RequestVote, VoteResponse
from kafkaesque.broker.raft.promises import Promises
from kafkaesque.broker.raft.state import State


def answer_pre_vote(state: State, message: PreVote) -> None:
    """Say what we would do; neither term nor vote changes, and no disk is needed (thesis 9.6)."""
    granted = (
        message.term >= state.term
        and not state.hears_leader
        and state.log.is_up_to_date(message.last_index, message.last_term)
    )
    state.outbox.append(PreVoteResponse(state.node_id, message.sender, state.term, granted))


def answer_vote(state: State, promises: Promises, message: RequestVote) -> None:
    """In our own term: one vote, to a candidate whose log lacks nothing (Raft 5.2, 5.4.1).

    A granted vote is owed until it is on disk. Whether we are a voter by our own log does not
    matter: the candidate may know a newer membership, and it is the one who counts.
    """
    can_vote = state.vote == message.sender or (state.vote is None and state.leader_id is None)
    if can_vote and state.log.is_up_to_date(message.last_index, message.last_term):
        state.vote = message.sender
        state.clock.restart()
        promises.owe_vote()
        promises.release()
    else:
        state.outbox.append(VoteResponse(state.node_id, message.sender, state.term, granted=False))
