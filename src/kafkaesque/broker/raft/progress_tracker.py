"""The followers and learners of a leader: what to send to each, and what a majority has.

Replication is lazy: Appends are built when a Ready is taken, so everything proposed in between is
sent together.
"""

from __future__ import annotations

from kafkaesque.broker.raft.messages import Append, Heartbeat, InstallSnapshot
from kafkaesque.broker.raft.progress import Inflights, Progress, ProgressState
from kafkaesque.broker.raft.quorum import majority, reached_by_majority
from kafkaesque.broker.raft.ready import PeerStatus
from kafkaesque.broker.raft.state import State
from kafkaesque.broker.raft.types import NO_INDEX, NO_ROUND, LogIndex, Round
from kafkaesque.model.errors import InvariantBroken, check
from kafkaesque.model.ids import MemberId


class ProgressTracker:
    """The progress of every other member of the group."""

    __slots__ = ("_state", "progress")

    def __init__(self, state: State) -> None:
        self._state = state
        self.progress: dict[MemberId, Progress] = {}
        """By member, this node excluded, in order of ids."""
        self.follow_membership()

    def follow_membership(self) -> None:
        """Adds new members and drops removed ones."""
        log, config = self._state.log, self._state.config
        fresh = LogIndex(log.last_index + 1)
        self.progress = {
            node: self.progress.get(node)
            or Progress(fresh, Inflights(config.inflight_messages_max, config.inflight_bytes_max))
            for node in sorted(self._state.membership.nodes)
            if node != self._state.node_id
        }

    @property
    def own_match_index(self) -> LogIndex:
        """The leader counts as one voter: its entries count once they are on its disk (thesis
        10.2.1: it may send them to others before)."""
        return self._state.log.durable_index

    def majority_index(self) -> LogIndex:
        """The last index that is on the disks of a majority of the voters."""
        matches = [
            self.own_match_index if node == self._state.node_id else self.progress[node].match_index
            for node in self._state.membership.voters
        ]
        return reached_by_majority(matches, NO_INDEX)

    def majority_round(self, own_round: Round) -> Round:
        """The newest round of heartbeats that a majority of the voters has answered."""
        rounds = [
            own_round if node == self._state.node_id else self.progress[node].acked_round
            for node in self._state.membership.voters
        ]
        return reached_by_majority(rounds, NO_ROUND)

    def has_active_majority(self) -> bool:
        voters = self._state.membership.voters
        active = sum(
            node == self._state.node_id or self.progress[node].is_active for node in voters
        )
        return active >= majority(len(voters))

    def has_reachable_majority(self) -> bool:
        voters = self._state.membership.voters
        lost = sum(
            node != self._state.node_id and self.progress[node].is_unreachable for node in voters
        )
        return len(voters) - lost >= majority(len(voters))

    def begin_window(self) -> None:
        """Starts to count activity for another election timeout."""
        for progress in self.progress.values():
            progress.begin_window()

    def mark_all_active(self) -> None:
        """After a pause nothing is known: all members count as active."""
        for progress in self.progress.values():
            progress.is_active = True

    def best_successor(self) -> MemberId | None:
        """The active voter with the longest log; None if no voter is active."""
        candidates = [
            (progress.match_index, -node, node)
            for node, progress in self.progress.items()
            if node in self._state.membership.voters and progress.answers
        ]
        return max(candidates)[2] if candidates else None

    def all_caught_up(self) -> bool:
        """Ignores members that the driver reported as unreachable."""
        last_index = self._state.log.last_index
        return all(
            progress.match_index == last_index or progress.is_unreachable
            for progress in self.progress.values()
        )

    def send_heartbeats(self, round_: Round, *, may_quiesce: bool) -> None:
        state = self._state
        for node, progress in self.progress.items():
            progress.mark(round_)
            state.outbox.append(
                Heartbeat(state.node_id, node, state.term, state.commit_index, round_, may_quiesce)
            )

    def send_entries(self) -> bool:
        """Sends Appends and snapshots; True if every member was sent something. An empty probe is
        sent too: it finds where the logs diverge."""
        last_index = self._state.log.last_index
        sent_count = 0
        for node, progress in self.progress.items():
            is_sent = False
            while progress.next_index <= last_index or progress.state is ProgressState.PROBE:
                if not progress.can_send:
                    break
                self._send_next(node, progress)
                is_sent = True
            sent_count += is_sent
        return sent_count == len(self.progress)

    def _send_next(self, node: MemberId, progress: Progress) -> None:
        log = self._state.log
        if progress.next_index < log.first_index:
            self._send_snapshot(node, progress)
            return
        entries = log.entries_from(progress.next_index, self._state.config.append_bytes_max)
        prev_index = LogIndex(progress.next_index - 1)
        prev_term = log.term_at(prev_index)
        if prev_term is None:
            raise InvariantBroken(f"no entry {prev_index} to append after")
        self._state.outbox.append(
            Append(
                self._state.node_id,
                node,
                self._state.term,
                prev_index,
                prev_term,
                self._state.commit_index,
                entries,
            )
        )
        progress.sent(len(entries), sum(entry.size_bytes for entry in entries))

    def _send_snapshot(self, node: MemberId, progress: Progress) -> None:
        snapshot = self._state.log.snapshot()
        check(snapshot.index >= self._state.log.first_index - 1, "the snapshot leaves a gap")
        check(snapshot.index <= self._state.commit_index, "a snapshot of uncommitted entries")
        self._state.outbox.append(
            InstallSnapshot(self._state.node_id, node, self._state.term, snapshot)
        )
        progress.sent_snapshot(snapshot.index)

    def tick(self) -> bool:
        """Restarts transfers of snapshots that were not acknowledged in time; True if there are any."""
        is_due = False
        for progress in self.progress.values():
            if progress.state is ProgressState.SNAPSHOT:
                progress.snapshot_ticks += 1
                if progress.snapshot_ticks >= self._state.config.snapshot_resend_ticks:
                    progress.start_over()
                    is_due = True
        return is_due

    def status(self) -> dict[MemberId, PeerStatus]:
        return {
            node: PeerStatus(
                progress.match_index,
                progress.next_index,
                progress.state.value,
                node in self._state.membership.learners,
                progress.answers,
            )
            for node, progress in self.progress.items()
        }

    def validate(self) -> None:
        members = set(self._state.membership.nodes) - {self._state.node_id}
        check(set(self.progress) == members, "progress of non-members")
        for progress in self.progress.values():
            progress.validate(self._state.log.last_index)
