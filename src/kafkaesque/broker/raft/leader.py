"""Rules of a leader: append, replicate, commit entries of its own term by counting, step down."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from kafkaesque.broker.raft.membership import ChangeKind, MembershipChange, changed
from kafkaesque.broker.raft.messages import (
    AppendRejected,
    AppendResponse,
    HeartbeatResponse,
    Message,
    TimeoutNow,
)
from kafkaesque.broker.raft.progress_tracker import ProgressTracker
from kafkaesque.broker.raft.reads import Reads
from kafkaesque.broker.raft.ready import ReadReady
from kafkaesque.broker.raft.state import Become, State
from kafkaesque.broker.raft.types import (
    NO_INDEX,
    SMALL_ENTRY_BYTES,
    Entry,
    EntryKind,
    LogIndex,
    Proposal,
    Refusal,
    Role,
)
from kafkaesque.model.errors import check
from kafkaesque.model.ids import MemberId


class Uncommitted:
    """Bytes appended in this leadership that are not committed yet."""

    __slots__ = ("_sizes", "size_bytes")

    def __init__(self) -> None:
        self._sizes: deque[tuple[LogIndex, int]] = deque()
        self.size_bytes = 0
        """The sum over `_sizes`."""

    def add(self, entries: Sequence[Entry]) -> None:
        size_bytes = sum(entry.size_bytes for entry in entries)
        self._sizes.append((entries[-1].index, size_bytes))
        self.size_bytes += size_bytes

    def free_to(self, commit_index: LogIndex) -> None:
        while self._sizes and self._sizes[0][0] <= commit_index:
            self.size_bytes -= self._sizes.popleft()[1]


class Leader:
    """The leader of one term."""

    role = Role.LEADER

    __slots__ = (
        "_heartbeat_due",
        "_heartbeat_ticks",
        "_idle_ticks",
        "_state",
        "_tick",
        "_transfer_ticks",
        "_uncommitted",
        "_window_ticks",
        "has_handed_over",
        "reads",
        "tracker",
        "transfer_target",
    )

    def __init__(self, state: State) -> None:
        self._state = state
        self.tracker = ProgressTracker(state)
        self.reads = Reads()
        self._uncommitted = Uncommitted()
        self._tick = 0
        """Ticks of this leadership; does not advance while the group is quiesced."""
        self._heartbeat_ticks = 0
        """Since all members were sent a heartbeat or entries. < config.heartbeat_ticks between ticks"""
        self._heartbeat_due = False
        """A round goes out with the next Ready."""
        self._window_ticks = 0
        """Since activity was last evaluated. < config.election_timeout_ticks between ticks"""
        self._idle_ticks = 0
        self.transfer_target: MemberId | None = None
        """While set, proposals are refused."""
        self._transfer_ticks = 0
        self.has_handed_over = False
        """A TimeoutNow of this term was sent and may arrive at any time: it overrides leases, so this
        leader has none any more."""
        self._append([(EntryKind.NOOP, None, SMALL_ENTRY_BYTES)])

    # Requests of the driver

    def propose(self, proposals: Sequence[Proposal]) -> LogIndex | Refusal:
        """Returns the index of the first; the others follow without a gap."""
        refusal = self.refusal(sum(proposal.size_bytes for proposal in proposals))
        if refusal is not None:
            return refusal
        return self._append([(EntryKind.DATA, *proposal) for proposal in proposals])

    def refusal(self, size_bytes: int) -> Refusal | None:
        if self.transfer_target is not None:
            return Refusal.TRANSFERRING
        uncommitted = self._uncommitted.size_bytes
        if uncommitted > 0 and uncommitted + size_bytes > self._state.config.uncommitted_bytes_max:
            return Refusal.OVERLOADED
        return None

    @property
    def may_commit_as_sole_voter(self) -> bool:
        """The next entry needs no other member, and nothing before it is in progress."""
        state = self._state
        return (
            state.is_sole_voter
            and state.is_term_confirmed
            and state.log.is_all_durable
            and not state.is_quiesced
        )

    def commit_as_sole_voter(self, last_index: LogIndex) -> None:
        """Commits entries that the driver has stored as safely as needed: a majority of one."""
        state = self._state
        state.log.append_durable(last_index, state.term)
        state.commit_to(last_index)
        self._idle_ticks = 0

    def propose_membership(self, change: MembershipChange) -> LogIndex | Refusal:
        state = self._state
        if self.transfer_target is not None:
            return Refusal.TRANSFERRING
        if state.members.index > state.commit_index:
            return Refusal.CHANGE_PENDING
        if not state.is_term_confirmed:
            return Refusal.TERM_UNCONFIRMED
        membership = changed(state.membership, change)
        if isinstance(membership, Refusal):
            return membership
        if change.kind is ChangeKind.PROMOTE and not self._is_caught_up(change.node_id):
            return Refusal.NOT_CAUGHT_UP
        index = self._append([(EntryKind.MEMBERSHIP, membership, SMALL_ENTRY_BYTES)])
        self.tracker.follow_membership()
        return index

    def read(self, context: object, ticks_owed: int) -> Refusal | None:
        state = self._state
        if len(self.reads) >= state.config.reads_max:
            return Refusal.OVERLOADED
        if not state.is_term_confirmed:
            self.reads.add_early(context)
        elif self.has_lease(ticks_owed):
            state.reads.append(ReadReady(context, state.commit_index))
        else:
            self.reads.add(context, state.commit_index)
        return None

    def has_lease(self, ticks_owed: int = 0) -> bool:
        """Whether a majority promised to elect no other leader, and that time is not over."""
        if not self._state.config.lease_reads or self.has_handed_over or self._state.is_quiesced:
            return False
        age_ticks = self.reads.lease_age_ticks(self._tick + ticks_owed)
        return age_ticks is not None and age_ticks <= self._state.config.lease_ticks

    def transfer_to(self, target: MemberId) -> Refusal | None:
        is_voter = target in self._state.membership.voters
        if target == self._state.node_id or not is_voter:
            return Refusal.NO_SUCH_MEMBER
        if self.transfer_target != target:
            self.transfer_target = target
            self._transfer_ticks = 0
            self._push_transfer()
        return None

    def hand_over(self) -> None:
        """Has the voter with the longest log start an election at once. The caller then steps down."""
        successor = self.tracker.best_successor()
        if successor is not None:
            self._send_timeout_now(successor)

    # Time

    def tick(self) -> Become | None:
        self._tick += 1
        self._heartbeat_ticks += 1
        self._window_ticks += 1
        self._heartbeat_due |= self.tracker.tick()
        if self.transfer_target is not None:
            self._transfer_ticks += 1
            if self._transfer_ticks >= self._state.config.election_timeout_ticks:
                self.transfer_target = None
        if self._window_ticks >= self._state.config.election_timeout_ticks:
            self._window_ticks = 0
            if not self.tracker.has_active_majority():
                return Become(Role.FOLLOWER)
            self.tracker.begin_window()
        if self._heartbeat_ticks >= self._state.config.heartbeat_ticks:
            self._heartbeat_due = True
            self._push_transfer()
        self._quiesce_if_idle()
        return None

    def _quiesce_if_idle(self) -> None:
        """Quiesces the group when it has been idle for long enough."""
        state = self._state
        if state.config.quiesce_after_ticks == 0:
            return
        is_idle = (
            self.transfer_target is None
            and not self.reads
            and state.commit_index == state.log.last_index == state.log.durable_index
            and self.tracker.all_caught_up()
            and self.tracker.has_reachable_majority()
        )
        self._idle_ticks = self._idle_ticks + 1 if is_idle else 0
        if self._idle_ticks >= state.config.quiesce_after_ticks:
            self._send_round(may_quiesce=True)
            self._idle_ticks = 0
            state.is_quiesced = True

    def wake(self) -> None:
        """As at the start of the leadership: nothing is known about the time that was quiesced."""
        self._heartbeat_due = True
        self._window_ticks = 0
        self._idle_ticks = 0
        self.tracker.mark_all_active()
        self.reads.drop_lease()

    def postpone_quiescence(self) -> None:
        """A heartbeat that quiesces the group is not answered: a normal one must be sent first."""
        self._idle_ticks = 0

    def heartbeat_next_tick(self) -> None:
        """Entries that would have replaced a heartbeat were not sent. The heartbeat follows with the
        next tick, not at once: its answers request the same entries again, which would cause as many
        heartbeats as the network carries."""
        self._heartbeat_ticks = self._state.config.heartbeat_ticks - 1

    @property
    def is_flush_due(self) -> bool:
        """A heartbeat is due with the next Ready, without any other cause."""
        return self._heartbeat_due

    def flush(self) -> None:
        """Sends what has accumulated; called before a Ready is taken."""
        if self._heartbeat_due or self.reads.needs_round:
            self._send_round(may_quiesce=False)
        if self.tracker.send_entries() and not self._state.config.lease_reads:
            # Entries reset election timeouts as heartbeats do; only leases need rounds.
            self._heartbeat_ticks = 0

    def _send_round(self, *, may_quiesce: bool) -> None:
        self._heartbeat_due = False
        self._heartbeat_ticks = 0
        round_ = self.reads.begin_round(self._tick)
        self.tracker.send_heartbeats(round_, may_quiesce=may_quiesce)
        self._confirm_round()

    # Answers of followers

    def step(self, message: Message) -> Become | None:
        progress = self.tracker.progress.get(message.sender)
        if progress is None:
            return None
        progress.heard()
        match message:
            case AppendResponse():
                check(message.match_index <= self._state.log.last_index, "matched beyond our log")
                if progress.acknowledged(message.match_index):
                    return self._on_progress()
            case AppendRejected():
                within = self._state.log.last_index_within_term(
                    message.hint_index, message.hint_term
                )
                progress.rejected(message.prev_index, LogIndex(within + 1))
            case HeartbeatResponse():
                check(message.match_index <= self._state.log.last_index, "matched beyond our log")
                is_news = progress.answered(
                    message.round, message.received_index, message.match_index
                )
                self._confirm_round()
                if is_news:
                    return self._on_progress()
            case _:
                pass  # late votes for this election
        return None

    def on_durable(self) -> Become | None:
        return self._on_progress()

    def _on_progress(self) -> Become | None:
        self._idle_ticks = 0
        self._push_transfer()
        return self._commit()

    def _confirm_round(self) -> None:
        confirmed = self.tracker.majority_round(self.reads.round)
        self._state.reads.extend(self.reads.confirm(confirmed))

    def _may_commit(self, index: LogIndex) -> bool:
        """Only an entry of this term is committed by counting; older ones are committed with it
        (Raft 5.4.2, figure 8)."""
        return self._state.log.term_at(index) == self._state.term

    def _commit(self) -> Become | None:
        state = self._state
        index = self.tracker.majority_index()
        if index <= state.commit_index or not self._may_commit(index):
            return None
        state.commit_to(index)
        self._uncommitted.free_to(index)
        self.reads.term_is_confirmed(index)
        self._heartbeat_due |= state.config.commit_broadcast
        if not state.is_voter and state.members.index <= index:
            # We were removed (thesis 4.2.2): send the commit index, hand over, step down.
            self._send_round(may_quiesce=False)
            self.hand_over()
            return Become(Role.FOLLOWER)
        return None

    # Shared

    def _append(self, contents: Sequence[tuple[EntryKind, object, int]]) -> LogIndex:
        first = LogIndex(self._state.log.last_index + 1)
        term = self._state.term
        entries = [
            Entry(LogIndex(first + position), term, kind, size_bytes, payload)
            for position, (kind, payload, size_bytes) in enumerate(contents)
        ]
        self._state.append(entries)
        self._uncommitted.add(entries)
        self._idle_ticks = 0
        return first

    def _is_caught_up(self, node: MemberId) -> bool:
        """Whether it may vote. One that has acknowledged nothing yet may not even exist, and a vote
        that is never given can cost the group its majority."""
        progress = self.tracker.progress.get(node)
        lag_max = self._state.config.promotion_lag_entries_max
        return (
            progress is not None
            and progress.is_active
            and progress.match_index > NO_INDEX
            and self._state.log.last_index - progress.match_index <= lag_max
        )

    def _push_transfer(self) -> None:
        """Repeated with each heartbeat, as any message may be lost; the target acts on one only."""
        if self.transfer_target is None:
            return
        progress = self.tracker.progress.get(self.transfer_target)
        if progress is None:
            self.transfer_target = None
        elif progress.match_index == self._state.log.last_index:
            self._send_timeout_now(self.transfer_target)

    def _send_timeout_now(self, target: MemberId) -> None:
        self.has_handed_over = True
        state = self._state
        state.outbox.append(TimeoutNow(state.node_id, target, state.term))

    def lost_contact(self, node: MemberId) -> None:
        progress = self.tracker.progress.get(node)
        if progress is not None:
            progress.lost_contact()

    def validate(self) -> None:
        state = self._state
        self.tracker.validate()
        check(state.leader_id == state.node_id, "a leader that follows another")
        check(not state.log.is_installing, "a leader without its log")
        check(self.reads.confirmed_round <= self.reads.round, "confirmed before it was sent")
