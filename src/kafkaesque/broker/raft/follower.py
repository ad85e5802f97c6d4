"""Rules of a follower: take what the leader of the term sends, ask for an election when it is gone."""

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
        """A message of this term; those of a leader are from the leader."""
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
                pass  # an answer to a question of our own that has lost its meaning
        return None

    def on_durable(self) -> Become | None:
        return None

    def flush(self) -> None:
        pass

    def wake(self) -> None:
        self._state.clock.restart()

    def lost_leader(self) -> None:
        """The leader's node is gone, says the driver. Under lease reads its word is not enough:
        the leader may live, cut off from us alone, and count on our silence."""
        if not self._state.config.lease_reads:
            self._state.clock.forget_leader()
            self._state.clock.hurry()

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
        """Keep what is equal, cut from the first conflict on, append the rest (Raft 5.3). What is
        committed is in every leader's log: it is equal without looking, and may be gone here."""
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
        """With the end of what could match: whole terms are skipped at once (Raft 5.3)."""
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
        """Only what is known to equal the leader's log is committed by the leader's word."""
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
        """A log that has the snapshot's last entry is right up to there and is kept."""
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
