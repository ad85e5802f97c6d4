"""What a node may say only when its disk agrees: granted votes and acknowledgements of entries.

Such messages do not exist before `synced` is called (Raft 5.1: "persistent state ... updated on
stable storage before responding"). What is owed is kept as state, not as messages, so any number
of Appends costs one acknowledgement a sync. A new term cancels all: its messages would be void.
"""

from __future__ import annotations

from kafkaesque.broker.raft.messages import AppendResponse, VoteResponse
from kafkaesque.broker.raft.state import State
from kafkaesque.broker.raft.types import NO_INDEX, LogIndex
from kafkaesque.model.errors import check


class Promises:
    __slots__ = ("_state", "acked_index", "owes_ack", "owes_vote", "term")

    def __init__(self, state: State) -> None:
        self._state = state
        self.term = state.term
        """Of all below; when the node's term moves on they are void."""
        self.owes_vote = False
        """`state.vote` asked, was granted, and was not told yet."""
        self.owes_ack = False
        """The leader sent entries and has not been told that they are on disk."""
        self.acked_index = NO_INDEX
        """The last acknowledgement of this term. acked_index <= matched_index"""

    def owe_vote(self) -> None:
        self._refresh()
        self.owes_vote = True

    def owe_ack(self) -> None:
        """Also for entries that are there already: the last answer may have been lost."""
        self._refresh()
        self.owes_ack = True

    @property
    def durable_match_index(self) -> LogIndex:
        """What may be acknowledged now; nothing before the term itself is on disk."""
        if not self._state.is_hard_state_durable:
            return NO_INDEX
        return min(self._state.matched_index, self._state.log.durable_index)

    def release(self) -> None:
        """Put into the outbox whatever the disk now allows."""
        self._refresh()
        if not self._state.is_hard_state_durable:
            return
        if self.owes_vote:
            self._say_vote()
        if self.owes_ack:
            self._say_ack()

    def _say_vote(self) -> None:
        state = self._state
        self.owes_vote = False
        if state.vote is not None and state.vote != state.node_id:
            state.outbox.append(VoteResponse(state.node_id, state.vote, state.term, granted=True))

    def _say_ack(self) -> None:
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
