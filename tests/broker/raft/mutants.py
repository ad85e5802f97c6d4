"""Planted bugs: each removes one rule, as if it were needless.

A mutant patches a class for the duration of a test. `faults` are those under which its rule matters.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest
from tests.broker.raft.simulation import CALM, LEASES, STORM, Faults

from kafkaesque.broker.raft import transitions
from kafkaesque.broker.raft.follower import Follower
from kafkaesque.broker.raft.leader import Leader
from kafkaesque.broker.raft.log_view import LogView
from kafkaesque.broker.raft.membership import MembershipChange, MembershipHistory, changed
from kafkaesque.broker.raft.messages import Append, Heartbeat, RequestVote
from kafkaesque.broker.raft.progress import Progress
from kafkaesque.broker.raft.progress_tracker import ProgressTracker
from kafkaesque.broker.raft.promises import Promises
from kafkaesque.broker.raft.reads import Reads
from kafkaesque.broker.raft.ready import ReadReady
from kafkaesque.broker.raft.state import State
from kafkaesque.broker.raft.types import EntryKind, LogIndex, Refusal, Round
from kafkaesque.broker.raft.write_tracker import WriteTracker


@dataclass(frozen=True)
class Mutant:
    plant: Callable[[pytest.MonkeyPatch], None]
    faults: Faults = CALM
    tick_count: int = 100
    heals: bool = False
    """The rule is about progress: the failure shows after the faults."""
    hint: int = 0
    """A seed known to find it; the search starts there."""

    @property
    def name(self) -> str:
        return self.plant.__name__


def vote_without_waiting_for_sync(patch: pytest.MonkeyPatch) -> None:
    owe_vote = Promises.owe_vote

    def eager(self: Promises) -> None:
        owe_vote(self)
        self._send_vote()

    patch.setattr(Promises, "owe_vote", eager)


def acknowledge_without_waiting_for_sync(patch: pytest.MonkeyPatch) -> None:
    eager = property(lambda self: self._state.matched_index)
    patch.setattr(Promises, "durable_match_index", eager)


def count_self_before_sync(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        ProgressTracker, "own_match_index", property(lambda self: self._state.log.last_index)
    )


def commit_an_old_term_by_counting(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Leader, "_may_commit", lambda self, index: True)


def no_check_of_the_previous_entry(patch: pytest.MonkeyPatch) -> None:
    def trusting(self: Follower, message: Append) -> None:
        if message.prev_index > self._state.log.last_index:
            self._reject(message)
        else:
            self._take_entries(message)
            last = LogIndex(message.prev_index + len(message.entries))
            self._acknowledge(last, message.commit_index)

    patch.setattr(Follower, "_append", trusting)


def vote_without_log_check(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(LogView, "is_up_to_date", lambda self, last_index, last_term: True)


def vote_twice_in_a_term(patch: pytest.MonkeyPatch) -> None:
    answer_vote = transitions.answer_vote

    def careless(state: State, promises: Promises, message: RequestVote) -> None:
        if state.vote != state.node_id:
            state.vote = None
        answer_vote(state, promises, message)

    patch.setattr(transitions, "answer_vote", careless)


def votes_while_it_hears_a_leader(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(State, "hears_leader", property(lambda self: False))


def lease_survives_a_handover(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        Leader,
        "has_handed_over",
        property(lambda self: False, lambda self, value: None),
    )


def lease_survives_sleep(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Reads, "drop_lease", lambda self: None)


def read_without_asking_anyone(patch: pytest.MonkeyPatch) -> None:
    def rash(self: Leader, context: object, ticks_owed: int) -> Refusal | None:
        self._state.reads.append(ReadReady(context, self._state.commit_index))
        return None

    patch.setattr(Leader, "read", rash)


def read_before_the_term_is_confirmed(patch: pytest.MonkeyPatch) -> None:
    def rash(self: Leader, context: object, ticks_owed: int) -> Refusal | None:
        self.reads.add(context, self._state.commit_index)
        return None

    patch.setattr(Leader, "read", rash)


def late_sync_speaks_for_cut_entries(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(WriteTracker, "clip", lambda self, last_index: None)
    is_durable_to = LogView.is_durable_to

    def lax(self: LogView, index: LogIndex) -> None:
        is_durable_to(self, min(index, self._emitted_index))

    patch.setattr(LogView, "is_durable_to", lax)


def commit_what_only_the_leader_has(patch: pytest.MonkeyPatch) -> None:
    heartbeat = Follower._heartbeat

    def trusting(self: Follower, message: Heartbeat) -> None:
        self._state.commit_to(min(message.commit_index, self._state.log.last_index))
        heartbeat(self, message)

    patch.setattr(Follower, "_heartbeat", trusting)


def cut_whatever_an_append_does_not_name(patch: pytest.MonkeyPatch) -> None:
    def blunt(self: Follower, message: Append) -> None:
        if message.prev_index < self._state.log.last_index:
            self._state.log.truncate_from(LogIndex(message.prev_index + 1))
            self._state.durability.clip(message.prev_index)
        if message.entries:
            self._state.append(message.entries)

    patch.setattr(Follower, "_take_entries", blunt)


def membership_changes_pile_up(patch: pytest.MonkeyPatch) -> None:
    def rash(self: Leader, change: MembershipChange) -> LogIndex | Refusal:
        membership = changed(self._state.membership, change)
        if isinstance(membership, Refusal):
            return membership
        index = self._append([(EntryKind.MEMBERSHIP, membership, 10)])
        self.tracker.follow_membership()
        return index

    patch.setattr(Leader, "propose_membership", rash)


def removed_node_never_campaigns(patch: pytest.MonkeyPatch) -> None:
    """Found by this simulation: a node that removed itself and then lost its leadership may have the
    longest log, and without it no node can be elected (thesis 4.2.2)."""
    patch.setattr(
        MembershipHistory, "may_campaign", lambda self, node, commit: node in self.current.voters
    )


def lost_acknowledgement_is_not_repeated(patch: pytest.MonkeyPatch) -> None:
    answered = Progress.answered

    def deaf(self: Progress, round_: Round, received: LogIndex, match: LogIndex) -> bool:
        return answered(self, round_, received, LogIndex(0))

    patch.setattr(Progress, "answered", deaf)


def lost_append_is_not_noticed(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Progress, "mark", lambda self, round_: None)


def nobody_waits_for_term_and_vote_to_be_synced(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(State, "is_hard_state_durable", property(lambda self: True))


RUSH = replace(
    CALM, election_timeout_ticks=4, sync=40, crash=20, restart=50, drop=0, cut=0, deliveries=12
)
SLEEP = replace(LEASES, quiesce=True, crash=0, heal=2)

MUTANTS = [
    Mutant(vote_without_waiting_for_sync),
    Mutant(acknowledge_without_waiting_for_sync),
    Mutant(nobody_waits_for_term_and_vote_to_be_synced),
    Mutant(count_self_before_sync),
    Mutant(commit_an_old_term_by_counting, STORM, hint=26),
    Mutant(no_check_of_the_previous_entry, replace(STORM, proposals=80), hint=58),
    Mutant(vote_without_log_check),
    Mutant(vote_twice_in_a_term, RUSH, hint=39),
    Mutant(votes_while_it_hears_a_leader, LEASES, hint=3),
    Mutant(lease_survives_a_handover, LEASES, hint=61),
    Mutant(lease_survives_sleep, SLEEP, tick_count=160, hint=5),
    Mutant(read_without_asking_anyone),
    Mutant(read_before_the_term_is_confirmed),
    Mutant(late_sync_speaks_for_cut_entries, replace(STORM, proposals=80)),
    Mutant(commit_what_only_the_leader_has, STORM),
    Mutant(cut_whatever_an_append_does_not_name),
    Mutant(membership_changes_pile_up, replace(CALM, membership=60, cut=10), hint=9),
    Mutant(removed_node_never_campaigns, replace(STORM, membership=40), heals=True),
    Mutant(lost_acknowledgement_is_not_repeated, STORM, heals=True, hint=10),
    Mutant(lost_append_is_not_noticed, STORM, heals=True),
]
