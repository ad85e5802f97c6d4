"""Invariants of elections, and what must be on disk for them (Raft figure 3; docs/RAFT.md)."""

from __future__ import annotations

from kafkaesque.broker.raft.messages import Message, RequestVote, VoteResponse
from kafkaesque.broker.raft.types import FRESH, HardState, LogIndex, Role, Term
from kafkaesque.lab.sim.checkers.base import Checker
from kafkaesque.lab.sim.durable_state import durable_hard_state
from kafkaesque.lab.sim.ground_truth import require
from kafkaesque.lab.sim.view import ReplicaView


class ElectionSafety(Checker):
    """At most one leader per term."""

    def steps(self, view: ReplicaView) -> None:
        state = view.state
        if state.leader_id == view.member and view.raft.leadership.role is Role.LEADER:
            known = view.group.leaders.get(state.term)
            require(
                known in (None, view.member),
                "election safety",
                f"{view}: {known} and {view.member} lead term {state.term}",
            )


class TermNeverFalls(Checker):
    """The term never falls between two starts. Across restarts VoteOnDisk covers terms with a vote."""

    def steps(self, view: ReplicaView) -> None:
        require(view.state.term >= view.truth.term, "term never falls", view)
        view.truth.term = view.state.term

    def opened(self, view: ReplicaView) -> None:
        view.truth.term = Term(0)


class VoteOnDisk(Checker):
    """A vote, also for itself, is durable before any node learns of it, and is found after a restart."""

    def sends(self, view: ReplicaView, message: Message) -> None:
        if isinstance(message, VoteResponse) and message.granted:
            promised = HardState(message.term, message.to)
        elif isinstance(message, RequestVote):
            promised = HardState(message.term, view.member)
        else:
            return
        durable = durable_hard_state(view.truth.disk, view.group.group)
        require(durable == promised, "vote on disk", f"{view} has {durable}, promised {promised}")
        view.truth.vote = promised

    def opened(self, view: ReplicaView) -> None:
        state, promised = view.state, view.truth.vote
        if promised != FRESH:
            is_kept = (state.term, state.vote) == promised or state.term > promised.term
            require(is_kept, "vote on disk", f"{view} forgot {promised}: {state.hard_state}")


class LeaderCompleteness(Checker):
    """A leader has every committed entry (Raft 5.4.3)."""

    def leads(self, view: ReplicaView, term: Term) -> None:
        log, committed = view.state.log, view.group.committed
        for number in range(log.first_index, len(committed)):
            require(
                committed[number].in_term >= term
                or log.term_at(LogIndex(number)) == committed[number].term,
                "leader completeness",
                f"{view} leads term {term} without entry {number}",
            )
