"""Rules of a follower: accept the entries of the term's leader, campaign when it is gone."""

from __future__ import annotations

from kafkaesque.broker.raft.messages import (
    Append,
    AppendRejected,
    Heartbeat,
    HeartbeatResponse,
    InstallSnapshot,
    Message,
    TimeoutNow,
)
from kafkaesque.broker.raft.promises import Promises
from kafkaesque.broker.raft.state import Become, State
from kafkaesque.broker.raft.types import NO_TERM, LogIndex, Role
from kafkaesque.model.errors import check


class Follower:
    """A follower in the current term."""

    role = Role.FOLLOWER

    __slots__ = ("_promises", "_state")

    def __init__(self, state: State, promises: Promises) -> None:
        self._state = state
        self._promises = promises

    def tick(self) -> Become | None:
        if not self._state.clock.tick():
            return None
        if self._state.can_campaign:
            return Become(Role.PRE_CANDIDATE)
        self._state.clock.restart()
        return None

    def step(self, message: Message) -> Become | None:
        """Handles a message of this term; a leader's message is from the accepted leader."""
        match message:
            case Append():
                self._append(message)
            case Heartbeat():
                self._heartbeat(message)
            case InstallSnapshot():
                self._install(message)
            case TimeoutNow() if self._state.can_campaign:
                return Become(Role.CANDIDATE, is_handover=True)
            case _:
                pass  # a late answer to a request of ours
        return None

    def on_durable(self) -> Become | None:
        return None

    def flush(self) -> None:
        pass

    def wake(self) -> None:
        self._state.clock.restart()

    def lost_leader(self) -> None:
        """The driver reports that the leader's node is gone. With lease reads that is not enough: the
        leader may be alive, unreachable only from here, and rely on our not voting."""
        if not self._state.config.lease_reads:
            self._state.clock.forget_leader()
            self._state.clock.shorten_timeout()

    def _append(self, message: Append) -> None:
        state = self._state
        is_committed = message.prev_index < state.commit_index
        if is_committed or state.log.matches(message.prev_index, message.prev_term):
            self._take_entries(message)
            last_index = LogIndex(message.prev_index + len(message.entries))
            self._acknowledge(last_index, message.commit_index)
        else:
            self._reject(message)

    def _take_entries(self, message: Append) -> None:
        """Keeps equal entries, truncates from the first conflict on, appends the rest (Raft 5.3).
        Committed entries are in every leader's log: they are equal without a comparison, and may
        have been dropped here."""
        state = self._state
        for position, entry in enumerate(message.entries):
            check(entry.index == message.prev_index + 1 + position, "an Append with a gap")
            if entry.index <= state.commit_index or state.log.matches(entry.index, entry.term):
                continue
            if entry.index <= state.log.last_index:
                state.truncate_from(entry.index)
            state.append(message.entries[position:])
            return

    def _acknowledge(self, matched_index: LogIndex, commit_index: LogIndex) -> None:
        state = self._state
        state.matched_index = max(state.matched_index, matched_index)
        state.commit_to(min(commit_index, state.matched_index))
        self._promises.owe_ack()
        self._promises.release()

    def _reject(self, message: Append) -> None:
        """Rejects with a hint where the logs may still match: it skips whole terms (Raft 5.3)."""
        state = self._state
        last = min(message.prev_index, state.log.last_index)
        hint_index = state.log.last_index_within_term(last, message.prev_term)
        hint_term = state.log.term_at(hint_index) or NO_TERM
        state.outbox.append(
            AppendRejected(
                state.node_id,
                message.sender,
                state.term,
                message.prev_index,
                hint_index,
                hint_term,
            )
        )

    def _heartbeat(self, message: Heartbeat) -> None:
        """The leader's commit index applies only to entries known to equal its log."""
        state = self._state
        state.commit_to(min(message.commit_index, state.matched_index))
        if message.may_quiesce and message.commit_index == state.log.last_index:
            state.is_quiesced = state.commit_index == message.commit_index
        if not state.is_quiesced:
            state.outbox.append(
                HeartbeatResponse(
                    state.node_id,
                    message.sender,
                    state.term,
                    message.round,
                    received_index=state.matched_index,
                    match_index=self._promises.durable_match_index,
                )
            )

    def _install(self, message: InstallSnapshot) -> None:
        """A log that contains the snapshot's last entry equals the leader's up to there and is kept."""
        state = self._state
        snapshot = message.snapshot
        if snapshot.index > state.commit_index:
            if state.log.matches(snapshot.index, snapshot.term):
                state.matched_index = max(state.matched_index, snapshot.index)
                state.commit_to(snapshot.index)
            else:
                state.install(snapshot)
        self._acknowledge(state.commit_index, state.commit_index)

    def validate(self) -> None:
        check(self._state.leader_id != self._state.node_id, "a follower that leads")
