"""Bugs in the rules of Raft. The rules alone have more of them: tests/broker/raft/mutants.py."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from kafkaesque.broker.raft import transitions
from kafkaesque.broker.raft.follower import Follower
from kafkaesque.broker.raft.leader import Leader
from kafkaesque.broker.raft.log_view import LogView
from kafkaesque.broker.raft.membership import MembershipChange, changed
from kafkaesque.broker.raft.messages import Append, Heartbeat, RequestVote
from kafkaesque.broker.raft.progress import Progress
from kafkaesque.broker.raft.progress_tracker import ProgressTracker
from kafkaesque.broker.raft.promises import Promises
from kafkaesque.broker.raft.state import State
from kafkaesque.broker.raft.types import EntryKind, LogIndex, Refusal
from kafkaesque.broker.raft.write_tracker import WriteTracker
from kafkaesque.lab.sim.planted.bug import Patches, Planted
from kafkaesque.lab.sim.profile import FOUL, ROUGH, Profile
from kafkaesque.lab.sim.schedule import MILLISECOND_US


def vote_before_it_is_synced(patches: Patches) -> None:
    owe_vote = Promises.owe_vote

    def eager(self: Promises) -> None:
        owe_vote(self)
        self._send_vote()

    patches.set(Promises, "owe_vote", eager)


def acknowledge_before_it_is_synced(patches: Patches) -> None:
    eager = property(lambda self: self._state.matched_index)
    patches.set(Promises, "durable_match_index", eager)


def leader_counts_itself_before_it_is_synced(patches: Patches) -> None:
    patches.set(
        ProgressTracker, "own_match_index", property(lambda self: self._state.log.last_index)
    )


def commit_an_old_term_by_counting(patches: Patches) -> None:
    patches.set(Leader, "_may_commit", lambda self, index: True)


def no_check_of_the_previous_entry(patches: Patches) -> None:
    def trusting(self: Follower, message: Append) -> None:
        if message.prev_index > self._state.log.last_index:
            self._reject(message)
        else:
            self._take_entries(message)
            last = LogIndex(message.prev_index + len(message.entries))
            self._acknowledge(last, message.commit_index)

    patches.set(Follower, "_append", trusting)


def vote_without_a_look_at_the_log(patches: Patches) -> None:
    patches.set(LogView, "is_up_to_date", lambda self, last_index, last_term: True)


def vote_twice_in_a_term(patches: Patches) -> None:
    answer_vote = transitions.answer_vote

    def careless(state: State, promises: Promises, message: RequestVote) -> None:
        if state.vote != state.node_id:
            state.vote = None
        answer_vote(state, promises, message)

    patches.set(transitions, "answer_vote", careless)


def commit_what_only_the_leader_has(patches: Patches) -> None:
    heartbeat = Follower._heartbeat

    def trusting(self: Follower, message: Heartbeat) -> None:
        self._state.commit_to(min(message.commit_index, self._state.log.last_index))
        heartbeat(self, message)

    patches.set(Follower, "_heartbeat", trusting)


def cut_whatever_an_append_does_not_name(patches: Patches) -> None:
    def blunt(self: Follower, message: Append) -> None:
        if message.prev_index < self._state.log.last_index:
            self._state.log.truncate_from(LogIndex(message.prev_index + 1))
            self._state.durability.clip(message.prev_index)
        if message.entries:
            self._state.append(message.entries)

    patches.set(Follower, "_take_entries", blunt)


def late_sync_speaks_for_cut_entries(patches: Patches) -> None:
    patches.set(WriteTracker, "clip", lambda self, last_index: None)
    is_durable_to = LogView.is_durable_to

    def lax(self: LogView, index: LogIndex) -> None:
        is_durable_to(self, min(index, self._emitted_index))

    patches.set(LogView, "is_durable_to", lax)


def membership_changes_pile_up(patches: Patches) -> None:
    def rash(self: Leader, change: MembershipChange) -> LogIndex | Refusal:
        membership = changed(self._state.membership, change)
        if isinstance(membership, Refusal):
            return membership
        index = self._append([(EntryKind.MEMBERSHIP, membership, 10)])
        self.tracker.follow_membership()
        return index

    patches.set(Leader, "propose_membership", rash)


def lost_append_is_not_noticed(patches: Patches) -> None:
    patches.set(Progress, "mark", lambda self, round_: None)


_STORM: Final = Profile(
    produce_interval_us=15 * MILLISECOND_US,
    fault_interval_us=60 * MILLISECOND_US,
    fault_phase_us=6_000 * MILLISECOND_US,
    link_quality=ROUGH,
    weights={
        "cut_one_way": 3,
        "isolate": 4,
        "heal": 6,
        "kill": 4,
        "power_cut": 4,
        "restart": 14,
        "slow_disk": 3,
    },
)
_LOSSY: Final = replace(_STORM, link_quality=FOUL, weights={"isolate": 1, "heal": 2})
_MEMBERS: Final = Profile(
    fault_interval_us=60 * MILLISECOND_US,
    weights={"remove_member": 6, "isolate": 3, "heal": 3, "transfer": 2},
)

RAFT_BUGS: Final = [
    Planted(vote_before_it_is_synced),
    Planted(acknowledge_before_it_is_synced),
    Planted(leader_counts_itself_before_it_is_synced, _STORM),
    Planted(commit_an_old_term_by_counting, _STORM),
    Planted(no_check_of_the_previous_entry, _STORM, first_seed=1),
    Planted(vote_without_a_look_at_the_log),
    Planted(vote_twice_in_a_term, _STORM, first_seed=15),
    Planted(commit_what_only_the_leader_has, _STORM),
    Planted(cut_whatever_an_append_does_not_name, first_seed=3),
    Planted(late_sync_speaks_for_cut_entries, _STORM, first_seed=8),
    Planted(membership_changes_pile_up, _MEMBERS, first_seed=1),
    Planted(lost_append_is_not_noticed, _LOSSY),
]
