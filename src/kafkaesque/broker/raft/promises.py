"""Messages that may be sent only after a sync: granted votes and acknowledgements of entries.

Such messages do not exist before `synced` is called (Raft 5.1: "persistent state ... updated on
stable storage before responding"). What is owed is kept as state, not as messages, so any number
of Appends costs one acknowledgement per sync. A new term cancels everything that was owed.
"""

from __future__ import annotations

from kafkaesque.broker.raft.messages import AppendResponse, VoteResponse
from kafkaesque.broker.raft.state import State
from kafkaesque.broker.raft.types import NO_INDEX, LogIndex
from kafkaesque.model.errors import check


class Promises:
    """The vote and the acknowledgement that this node owes in its current term."""

    __slots__ = ("_state", "acked_index", "owes_ack", "owes_vote", "term")

    def __init__(self, state: State) -> None:
        self._state = state
        self.term = state.term
        """The term of the fields below; a later term of the node makes them void."""
        self.owes_vote = False
        """`state.vote` was granted the vote and has not been answered yet."""
        self.owes_ack = False
        """The leader sent entries that have not been acknowledged yet."""
        self.acked_index = NO_INDEX
        """The last acknowledgement of this term. acked_index <= matched_index"""

    def owe_vote(self) -> None:
        self._refresh()
        self.owes_vote = True

    def owe_ack(self) -> None:
        """Also for entries that the log has already: the last answer may have been lost."""
        self._refresh()
        self.owes_ack = True

    @property
    def durable_match_index(self) -> LogIndex:
        """The index that may be acknowledged now; 0 until the term itself is on disk."""
        if not self._state.is_hard_state_durable:
            return NO_INDEX
        return min(self._state.matched_index, self._state.log.durable_index)

    def release(self) -> None:
        """Sends the owed messages whose state is now on disk."""
        self._refresh()
        if not self._state.is_hard_state_durable:
            return
        if self.owes_vote:
            self._send_vote()
        if self.owes_ack:
            self._send_ack()

    def _send_vote(self) -> None:
        state = self._state
        self.owes_vote = False
        if state.vote is not None and state.vote != state.node_id:
            state.outbox.append(VoteResponse(state.node_id, state.vote, state.term, granted=True))

    def _send_ack(self) -> None:
        state = self._state
        if state.leader_id is None or state.leader_id == state.node_id:
            self.owes_ack = False
            return
        index = self.durable_match_index
        is_whole = index == state.matched_index
        if index > self.acked_index or is_whole:
            self.acked_index = index
            self.owes_ack = not is_whole
            state.outbox.append(AppendResponse(state.node_id, state.leader_id, state.term, index))

    def _refresh(self) -> None:
        if self.term != self._state.term:
            self.term = self._state.term
            self.owes_vote = self.owes_ack = False
            self.acked_index = NO_INDEX

    def validate(self) -> None:
        check(self.term <= self._state.term, "promises of a later term")
        if self.term == self._state.term:
            check(self.acked_index <= self._state.log.last_index, "acknowledged beyond the log")
