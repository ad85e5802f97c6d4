"""`Raft`: one node of one group, as its driver uses it. Calls go in, a `Ready` comes out.

Terms and roles are in `transitions`, the rules in the modules of the roles.
"""

from __future__ import annotations

from collections.abc import Sequence

from kafkaesque.broker.raft.clock import Jitter
from kafkaesque.broker.raft.config import RaftConfig
from kafkaesque.broker.raft.follower import Follower
from kafkaesque.broker.raft.leader import Leader
from kafkaesque.broker.raft.membership import MembershipChange
from kafkaesque.broker.raft.messages import Message, PreVote, RequestVote
from kafkaesque.broker.raft.promises import Promises
from kafkaesque.broker.raft.ready import Committed, Leadership, Ready, Status
from kafkaesque.broker.raft.state import Become, State
from kafkaesque.broker.raft.transitions import Transitions
from kafkaesque.broker.raft.types import (
    NO_INDEX,
    HardState,
    LogIndex,
    Membership,
    Proposal,
    RaftLog,
    Refusal,
    Refused,
    Restart,
    Role,
    SyncToken,
    Term,
)
from kafkaesque.model.errors import check
from kafkaesque.model.ids import MemberId


class Raft:
    """One node of one group. Not thread-safe. After any call `ready()` may return something."""

    __slots__ = (
        "_applied_index",
        "_emitted_committed",
        "_emitted_hard_state",
        "_emitted_leadership",
        "_has_failed",
        "_promises",
        "_state",
        "_transitions",
    )

    def __init__(
        self,
        node_id: MemberId,
        config: RaftConfig,
        log: RaftLog,
        jitter: Jitter,
        restart: Restart | None = None,
    ) -> None:
        found = restart or Restart()
        self._state = State(node_id, config, log, found, jitter)
        self._promises = Promises(self._state)
        self._transitions = Transitions(self._state, self._promises)
        self._emitted_hard_state = found.hard_state
        self._applied_index = max(found.applied_index, LogIndex(log.first_index - 1))
        """_applied_index <= _emitted_committed"""
        self._emitted_committed = self._applied_index
        """Readies had the driver apply up to here. <= commit_index, and <= durable_index unless a
        snapshot is being installed"""
        self._emitted_leadership: Leadership | None = None
        self._has_failed = False
        """The disk failed: this node does nothing any more."""
        check(self._applied_index <= log.last_index, "applied beyond the log")
        self._state.commit_to(self._applied_index)

    # Requests of the driver

    def tick(self) -> bool:
        """Counts a tick of the driver's monotonic clock; quiesced groups need none. False if it
        caused nothing: then no new Ready is due."""
        if self._state.is_quiesced or self._has_failed:
            return False
        become = self._transitions.role.tick()
        self._transitions.follow(become)
        leader = self._transitions.leader
        is_flush_due = leader is not None and leader.is_flush_due
        return become is not None or is_flush_due or bool(self._state.outbox)

    def step(self, message: Message) -> None:
        """Handles a message from a peer; it may be duplicated or out of order."""
        if self._has_failed or message.to != self._state.node_id:
            return
        if self._state.is_quiesced and self._transitions.wakes(message):
            self._wake()
            if isinstance(message, PreVote | RequestVote):
                # The sender has lost the leader; if we soon lost it too, we would vote.
                self._transitions.wake_leader(message.sender)
        self._transitions.step(message)

    def propose(self, proposals: Sequence[Proposal]) -> LogIndex:
        """Appends DATA entries and returns the index of the first. Raises Refused. They are committed
        when a Ready says so, and may be lost if leadership is lost before."""
        check(bool(proposals), "nothing was proposed")
        return self._value(self._leader().propose(proposals))

    def refusal(self, size_bytes: int) -> Refusal | None:
        """Why a proposal of `size_bytes` would be refused now. For a driver that writes a batch to
        its log before it proposes it, so that a full disk is noticed in time."""
        leader = self._transitions.leader
        if leader is None or self._has_failed:
            return Refusal.NOT_LEADER
        return leader.refusal(size_bytes)

    @property
    def may_commit_as_sole_voter(self) -> bool:
        """Whether `commit_as_sole_voter` may be called now."""
        role = self._transitions.role
        return isinstance(role, Leader) and not self._has_failed and role.may_commit_as_sole_voter

    def commit_as_sole_voter(self, last_index: LogIndex) -> None:
        """Accepts DATA entries of a sole voter up to `last_index`, which the driver has written and
        need not sync: they are committed and applied, and no Ready reports them."""
        check(
            self.may_commit_as_sole_voter,
            "commit_as_sole_voter on a node that is not the sole voter",
        )
        self._leader().commit_as_sole_voter(last_index)
        self._emitted_committed = last_index
        self.applied(last_index)

    def propose_membership(self, change: MembershipChange) -> LogIndex:
        """Appends a MEMBERSHIP entry and returns its index. Raises Refused."""
        return self._value(self._leader().propose_membership(change))

    def read_index(self, context: object, *, ticks_owed: int = 0) -> None:
        """Requests a linearizable read; a Ready answers with `context` and the index to wait for.
        Raises Refused. The request is lost with the leadership: the driver fails it when
        `Ready.leadership` reports that.

        `ticks_owed`: ticks that are due by the clock and not delivered yet, as after a pause of the
        process: a lease must not look younger than it is.
        """
        self._refuse(self._leader().read(context, ticks_owed))

    def transfer_leadership(self, target: MemberId) -> None:
        """Transfers leadership to `target` as soon as it has the whole log; meanwhile proposals are
        refused. Abandoned after an election timeout. Raises Refused."""
        self._refuse(self._leader().transfer_to(target))

    def campaign(self) -> None:
        """Starts a pre-vote now, as after a timeout. With lease reads, does nothing while there is
        contact with a leader, which relies on our not campaigning."""
        state = self._state
        is_bound = state.config.lease_reads and state.hears_leader
        can_campaign = state.can_campaign and self._transitions.leader is None
        if can_campaign and not is_bound and not self._has_failed:
            self._transitions.follow(Become(Role.PRE_CANDIDATE))

    def resign(self) -> None:
        """Gives up leadership to the voter with the longest log; stays a member."""
        leader = self._transitions.leader
        if leader is not None:
            self._wake()
            leader.flush()
            leader.hand_over()
            self._transitions.follow(Become(Role.FOLLOWER))

    def storage_failed(self) -> None:
        """A write or a sync failed, so the content of the disk is unknown: resigns and then does
        nothing any more. One last Ready has the resignation; it requires no write."""
        self.resign()
        self._has_failed = True

    def wake(self) -> None:
        """Restarts the clocks of a quiesced group. Drivers do this for every quiesced group from time
        to time, so that no bug can leave one quiesced for ever.

        A follower also wakes its leader, which is quiesced and relies on our not voting: it must
        send a heartbeat before our election timeout elapses.
        """
        if self._state.is_quiesced:
            self._wake()
            self._transitions.wake_leader()

    def _wake(self) -> None:
        if self._state.is_quiesced:
            self._state.is_quiesced = False
            self._transitions.role.wake()

    def peer_unreachable(self, node: MemberId) -> None:
        """The link to a node broke or its process is gone: messages may be lost."""
        role = self._transitions.role
        if isinstance(role, Leader):
            role.lost_contact(node)
            if node in self._state.membership:
                self._wake()
        elif isinstance(role, Follower) and node == self._state.leader_id:
            self._wake()
            role.lost_leader()

    def peer_reachable(self, node: MemberId) -> None:
        """The link is up again: a quiesced leader must check that the node has everything, and one
        about to quiesce must hear from it first."""
        leader = self._transitions.leader
        if leader is not None and node in self._state.membership:
            self._wake()
            leader.postpone_quiescence()

    def snapshot_failed(self, node: MemberId) -> None:
        """An InstallSnapshot was lost, or the node could not use it."""
        leader = self._transitions.leader
        if leader is not None:
            leader.lost_contact(node)

    def append_was_not_sent(self) -> None:
        """The driver could not load the entries of an Append. Followers must hear from this leader
        anyway: its lease may depend on it."""
        leader = self._transitions.leader
        if leader is not None:
            leader.heartbeat_next_tick()

    # Reports of the driver

    def synced(self, token: SyncToken) -> None:
        """Everything in the Readies up to `token` is durable."""
        if self._has_failed:
            return
        self._state.confirm(token)
        self._promises.release()
        self._transitions.follow(self._transitions.role.on_durable())

    def applied(self, index: LogIndex) -> None:
        """The state machine has applied every entry up to `index`."""
        check(index <= self._emitted_committed, f"applied {index} before it was committed")
        self._applied_index = max(self._applied_index, index)
        self._state.members.forget_before(LogIndex(self._state.log.first_index - 1))

    def advance(self, ready: Ready) -> None:
        """All of `ready` is done, in order, by a driver that waits for its disk."""
        if ready.token is not None:
            self.synced(ready.token)
        if ready.committed is not None:
            self.applied(ready.committed.last)

    # Effects and views

    def ready(self) -> Ready | None:
        """Returns the effects since the last Ready; None if there are none."""
        if self._has_failed:
            return self._final_ready()
        state = self._state
        self._transitions.role.flush()
        hard_state = self._take_hard_state()
        snapshot = state.log.take_snapshot()
        truncate_from = state.log.take_truncation()
        entries = state.log.take_entries()
        token = None
        if hard_state is not None or snapshot is not None or entries or truncate_from is not None:
            snapshot_index = snapshot.index if snapshot is not None else NO_INDEX
            token = state.durability.begin(hard_state, snapshot_index, state.log.last_index)
        if snapshot is not None:
            self._applied_index = self._emitted_committed = snapshot.index
        committed = self._take_committed()
        leadership = self._take_leadership()
        has_effect = token is not None or committed is not None or leadership is not None
        if not has_effect and not state.outbox and not state.reads:
            return None
        messages, state.outbox = tuple(state.outbox), []
        reads, state.reads = tuple(state.reads), []
        return Ready(
            token=token,
            hard_state=hard_state,
            snapshot=snapshot,
            truncate_from=truncate_from,
            entries=entries,
            messages=messages,
            committed=committed,
            commit_index=state.commit_index,
            reads=reads,
            leadership=leadership,
        )

    def _final_ready(self) -> Ready | None:
        messages, self._state.outbox = tuple(self._state.outbox), []
        leadership = self._take_leadership()
        if not messages and leadership is None:
            return None
        return Ready(
            messages=messages, leadership=leadership, commit_index=self._state.commit_index
        )

    def _take_hard_state(self) -> HardState | None:
        term, vote = self._emitted_hard_state
        if self._state.term == term and self._state.vote == vote:
            return None
        self._emitted_hard_state = self._state.hard_state
        return self._emitted_hard_state

    def _take_committed(self) -> Committed | None:
        """Only entries on our own disk: a state machine never gets ahead of its log."""
        last = min(self._state.commit_index, self._state.log.durable_index)
        if last <= self._emitted_committed:
            return None
        first = LogIndex(self._emitted_committed + 1)
        self._emitted_committed = last
        return Committed(first, last)

    def _take_leadership(self) -> Leadership | None:
        state, last = self._state, self._emitted_leadership
        if (
            last is not None
            and last.term == state.term
            and last.leader_id == state.leader_id
            and last.is_confirmed == state.is_term_confirmed
            and last.role is self._transitions.role.role
        ):
            return None
        self._emitted_leadership = self.leadership
        return self._emitted_leadership

    @property
    def leadership(self) -> Leadership:
        state = self._state
        role = self._transitions.role.role
        return Leadership(role, state.term, state.leader_id, state.is_term_confirmed)

    @property
    def last_index(self) -> LogIndex:
        return self._state.log.last_index

    @property
    def commit_index(self) -> LogIndex:
        return self._state.commit_index

    @property
    def membership(self) -> Membership:
        return self._state.membership

    @property
    def has_handed_over(self) -> bool:
        """Leader, and a successor was asked to campaign: its lease is void."""
        leader = self._transitions.leader
        return leader is not None and leader.has_handed_over

    def has_answer_of(self, node: MemberId) -> bool:
        """Leader, and `node` has answered in our term and was not lost since. A member that was lost,
        or never answered, may follow another leader by now, even if its broker answers ours."""
        leader = self._transitions.leader
        progress = None if leader is None else leader.tracker.progress.get(node)
        return progress is not None and progress.has_answered

    @property
    def is_transferring(self) -> bool:
        leader = self._transitions.leader
        return leader is not None and leader.transfer_target is not None

    @property
    def is_quiesced(self) -> bool:
        """No tick is needed until another call."""
        return self._state.is_quiesced

    def term_at(self, index: LogIndex) -> Term | None:
        """The term of an entry in the log, on disk or not; None if it is not in the log."""
        return self._state.log.term_at(index)

    def membership_at(self, index: LogIndex) -> Membership:
        """The membership as of the entry at `index`, which must be in the log: for a snapshot there."""
        return self._state.members.at(index)

    def status(self) -> Status:
        state, leader = self._state, self._transitions.leader
        return Status(
            node_id=state.node_id,
            leadership=self.leadership,
            vote=state.vote,
            membership=state.membership,
            commit_index=state.commit_index,
            applied_index=self._applied_index,
            durable_index=state.log.durable_index,
            last_index=state.log.last_index,
            majority_index=NO_INDEX if leader is None else leader.tracker.majority_index(),
            is_quiesced=state.is_quiesced,
            has_lease=leader is not None and leader.has_lease(),
            transfer_target=None if leader is None else leader.transfer_target,
            peers={} if leader is None else leader.tracker.status(),
        )

    def validate(self) -> None:
        """Checks all invariants. Costly: for tests and simulation."""
        self._state.validate()
        self._promises.validate()
        self._transitions.role.validate()
        check(self._applied_index <= self._emitted_committed, "applied before it was committed")
        check(
            self._emitted_committed <= self._state.commit_index, "emitted before it was committed"
        )

    # Shared

    def _leader(self) -> Leader:
        leader = self._transitions.leader
        if leader is None or self._has_failed:
            raise Refused(Refusal.NOT_LEADER, self._state.leader_id)
        self._wake()
        return leader

    def _value(self, result: LogIndex | Refusal) -> LogIndex:
        if isinstance(result, Refusal):
            raise Refused(result, self._state.leader_id)
        return result

    def _refuse(self, refusal: Refusal | None) -> None:
        if refusal is not None:
            raise Refused(refusal, self._state.leader_id)
