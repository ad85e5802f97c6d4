"""All Raft groups of a node: one clock, one outbox, one raft journal; each processed once per turn.

Idle groups are quiesced and cost nothing; a tick visits only the groups that are awake. Every event
marks its group, and at the end of the turn each marked group is processed once. So appends that
arrive together are written, sent and synced together.

The *end of the turn* is a callback of `call_soon`: it runs in the next iteration of the event loop,
after all callbacks that were ready before the first event of the turn.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Protocol

from kafkaesque.broker.raft.config import RaftConfig
from kafkaesque.broker.raft.messages import InstallSnapshot, Message, PreVote
from kafkaesque.broker.raft.types import Role
from kafkaesque.broker.replication.flusher import Syncable
from kafkaesque.broker.replication.raft_journal import RaftJournal
from kafkaesque.broker.replication.replica import Replica
from kafkaesque.broker.replication.rules.entry_payload import Blob
from kafkaesque.broker.replication.sync_journal import LogLost, SyncJournal
from kafkaesque.broker.storage.log import Log
from kafkaesque.broker.storage.unsynced_tail import Share
from kafkaesque.model.clock import Clock
from kafkaesque.model.errors import StorageFailed, check
from kafkaesque.model.ids import GroupId, MemberId, NodeId, Offset, node_of

TICK_SECONDS = 0.1
RAFT_CONFIG = RaftConfig(
    election_timeout_ticks=10, heartbeat_ticks=3, quiesce_after_ticks=30, snapshot_resend_ticks=100
)
"""A dead process is noticed at once by its broken links. These timeouts are for hosts that fall
silent, and long enough that a busy event loop is not mistaken for one."""
CONTROLLER_CONFIG = replace(RAFT_CONFIG, commit_broadcast=True)
"""Every broker applies the controller's log as soon as it can."""

ONE_WOKEN_EVERY_TICKS = 10
"""Quiesced groups are woken one after the other: a bug cannot leave one quiesced forever, and the
messages of idle groups do not grow with their number."""


EARLY_MESSAGES_MAX = 20_000
EARLY_KEPT_TICKS = 50


class PeerOutbox(Protocol):
    """Sends messages to other nodes. Implemented by `Links`."""

    def send(
        self, node: NodeId, group: GroupId, message: Message, blobs: Sequence[Blob]
    ) -> None: ...

    def lease_until(self, node: NodeId) -> float:
        """Monotonic time until which `node` considers this node alive."""


class Syncer(Protocol):
    @property
    def sync_journal(self) -> SyncJournal | None:
        """The journal that syncs many logs at once; None if each log syncs its own files."""

    def request_sync(self, log: Syncable) -> None: ...


class _Ticks:
    __slots__ = ("count", "times")

    def __init__(self, now: float) -> None:
        self.count = 0
        self.times = deque((now,), maxlen=RAFT_CONFIG.heartbeat_ticks + 1)
        """The newest ticks, oldest first. Within this many, every awake group has sent a heartbeat."""


class ReplicaSet:
    """Implements `ReplicaHost`. `call_soon` is the event loop's."""

    __slots__ = (
        "_awake",
        "_call_soon",
        "_clock",
        "_damaged",
        "_early",
        "_fail",
        "_is_turn_due",
        "_marked",
        "_raft_journal_sync",
        "_replicas",
        "_syncer",
        "_ticks",
        "_waiting",
        "fetch_prefix",
        "member",
        "outbox",
        "raft_journal",
    )

    def __init__(
        self,
        member: MemberId,
        raft_journal: RaftJournal,
        syncer: Syncer,
        outbox: PeerOutbox,
        fetch_prefix: Callable[[Replica, InstallSnapshot], None],
        clock: Clock,
        call_soon: Callable[[Callable[[], None]], object],
        fail: Callable[[BaseException], None],
    ) -> None:
        """`fetch_prefix`: see `ReplicaHost`."""
        self.member = member
        self.outbox = outbox
        self.fetch_prefix = fetch_prefix
        self.raft_journal = raft_journal
        self._syncer = syncer
        self._clock = clock
        self._call_soon = call_soon
        self._fail = fail
        """Stops the node: the raft journal belongs to every group."""
        self._replicas: dict[GroupId, Replica] = {}
        self._awake: dict[Replica, None] = {}
        self._marked: dict[Replica, None] = {}
        self._waiting: dict[Replica, None] = {}
        """Replicas that wait for a sync of the raft journal."""
        self._early: dict[tuple[GroupId, MemberId], Message] = {}
        """Messages for groups that may be about to be created here."""
        self._damaged: dict[Replica, None] = {}
        self._is_turn_due = False
        self._raft_journal_sync = _RaftJournalSync(self)
        self._ticks = _Ticks(clock.monotonic())

    # -- groups --------------------------------------------------------------------------------

    def add(self, replica: Replica) -> None:
        check(replica.group not in self._replicas, f"group {replica.group} is here twice")
        self._replicas[replica.group] = replica
        self.touch(replica)
        for sender in replica.membership.nodes:
            message = self._early.pop((replica.group, sender), None)
            if message is not None:
                replica.step(message)

    def remove(self, group: GroupId) -> None:
        replica = self._replicas.pop(group, None)
        if replica is not None:
            for replicas in (self._awake, self._marked, self._waiting):
                replicas.pop(replica, None)

    @property
    def sync_journal(self) -> SyncJournal | None:
        return self._syncer.sync_journal

    def attach(self, group: GroupId, log: Log) -> None:
        """Register a log that was just opened with the sync journal."""
        if self.sync_journal is not None:
            self.sync_journal.attach(group, log)

    def restore(self, group: GroupId, log: Log) -> None:
        """Restore from the sync journal what a log's own files may have lost. Blocking."""
        facts = self.raft_journal.facts(group)
        if self.sync_journal is not None and facts is not None:
            self.sync_journal.restore(group, log, facts.start.offset)

    def close_journals(self, *, clean: bool) -> None:
        """Called when all logs are closed. `clean`: each of them is complete in its own files."""
        self.raft_journal.close(clean=clean)
        if self.sync_journal is not None:
            self.sync_journal.close(clean=clean)

    def logs_lost(self, lost: Iterable[LogLost]) -> None:
        """Fail the replicas of logs whose files could not be synced."""
        for group, log, error in lost:
            replica = self._replicas.get(group)
            if replica is not None and replica.entries.log is log:
                replica.sync_failed(error)

    def get(self, group: GroupId) -> Replica | None:
        return self._replicas.get(group)

    def __iter__(self) -> Iterator[Replica]:
        yield from tuple(self._replicas.values())

    def __len__(self) -> int:
        return len(self._replicas)

    @property
    def awake_count(self) -> int:
        return len(self._awake)

    def may_serve(self, replica: Replica) -> bool:
        """Whether `replica` leads and no other leader can have been elected yet.

        A majority answered recent pings of this node, and a node that answered elects no other
        leader for the duration of the lease (docs/RAFT.md, Leases). A process that was suspended
        finds its leases expired; then its links break, and pings over new links count for a group
        only after its members have answered in this term.
        """
        if not replica.is_leader:
            return False
        voters = replica.membership.voters
        if len(voters) == 1:
            return voters[0] == self.member
        if replica.raft.has_handed_over:
            return False
        now = self._clock.monotonic()
        held = sum(
            voter == self.member
            or (self.outbox.lease_until(node_of(voter)) > now and replica.raft.has_answer_of(voter))
            for voter in voters
        )
        return held > len(voters) // 2

    def heartbeats_since(self) -> float:
        """Return a time since which every awake group led here has sent a heartbeat to its members: it
        does so every few ticks and with the first tick of its term. (Quiesced groups rely on no
        clock.)"""
        return self._ticks.times[0]

    # -- events of the node ----------------------------------------------------------------------

    def step(self, group: GroupId, message: Message) -> None:
        """A message from a peer. A message for an unknown group is dropped, except for PreVotes: a new
        group starts on all its nodes at about the same time, and its first election should not wait
        for a timeout because one node was quicker."""
        replica = self._replicas.get(group)
        if replica is not None:
            replica.step(message)
        elif len(self._early) < EARLY_MESSAGES_MAX and isinstance(message, PreVote):
            self._early[group, message.sender] = message

    def tick(self) -> None:
        """Called every TICK_SECONDS of monotonic time. Ticks missed during a stall are not made up
        for: a busy event loop is no reason for an election."""
        self._ticks.count += 1
        self._ticks.times.append(self._clock.monotonic())
        if self.raft_journal.failure is not None:
            # Opening a group may have found the failure; nothing else would stop the node then.
            self._fail(StorageFailed(self.raft_journal.failure))
            return
        if self._waiting:
            self._syncer.request_sync(self._raft_journal_sync)
        if self._ticks.count % EARLY_KEPT_TICKS == 0:
            self._early.clear()
        if self._ticks.count % ONE_WOKEN_EVERY_TICKS == 0 and self._replicas:
            # The group that was visited longest ago: dicts keep their order.
            group, oldest = next(iter(self._replicas.items()))
            self._replicas[group] = self._replicas.pop(group)
            oldest.raft.wake()
            self._awake[oldest] = None
        for replica in tuple(self._awake):
            if replica.raft.is_quiesced:
                del self._awake[replica]
            else:
                replica.tick()

    def unreachable(self, node: NodeId) -> None:
        for replica in self:
            for member in replica.membership.nodes:
                if node_of(member) == node:
                    replica.peer_unreachable(member)

    def reachable(self, node: NodeId) -> None:
        for replica in self:
            for member in replica.membership.nodes:
                if node_of(member) == node:
                    replica.peer_reachable(member)

    def dropped(self, node: NodeId) -> None:
        """Messages to `node` were dropped on this side: the groups led here send again."""
        for replica in self:
            if replica.leadership.role is Role.LEADER:
                for member in replica.membership.nodes:
                    if node_of(member) == node:
                        replica.peer_unreachable(member)

    # -- ReplicaHost -----------------------------------------------------------------------------

    def touch(self, replica: Replica) -> None:
        self._marked[replica] = None
        self._awake[replica] = None
        if not self._is_turn_due:
            self._is_turn_due = True
            self._call_soon(self._turn)

    def _turn(self) -> None:
        """Process the marked groups, and those that get marked meanwhile."""
        try:
            while self._marked:
                marked, self._marked = self._marked, {}
                for replica in marked:
                    if self._replicas.get(replica.group) is replica:
                        replica.process()
        except Exception as error:  # noqa: BLE001 - the supervisor: a rule was broken, the node stops
            self._fail(error)
        finally:
            self._is_turn_due = False

    def sync_raft_journal(self, replica: Replica) -> None:
        self._waiting[replica] = None
        self._syncer.request_sync(self._raft_journal_sync)

    def sync_log(self, replica: Replica) -> None:
        self._syncer.request_sync(replica)

    def damaged(self, replica: Replica) -> None:
        self._damaged[replica] = None

    def take_damaged(self) -> list[Replica]:
        """The replicas in which damage was found since the last call."""
        damaged, self._damaged = self._damaged, {}
        return list(damaged)

    def send(self, group: GroupId, message: Message, blobs: Sequence[Blob]) -> None:
        self.outbox.send(node_of(message.to), group, message, blobs)

    def now_ms(self) -> int:
        return self._clock.wall_ms()

    def monotonic(self) -> float:
        return self._clock.monotonic()

    def raft_journal_synced(self) -> None:
        waiting, self._waiting = self._waiting, {}
        for replica in waiting:
            replica.raft_journal_synced()

    def raft_journal_failed(self, error: StorageFailed) -> None:
        """A full disk may get room again: the next tick retries for the replicas that wait."""
        if self.raft_journal.failure is not None:
            self._fail(error)


class _RaftJournalSync:
    """Adapts the raft journal to the flusher."""

    __slots__ = ("_replicas",)

    def __init__(self, replicas: ReplicaSet) -> None:
        self._replicas = replicas

    def sync(self) -> Offset:
        return Offset(self._replicas.raft_journal.sync())

    def share(self) -> Share | None:
        return None

    def synced(self, _: Offset) -> None:
        self._replicas.raft_journal_synced()

    def sync_failed(self, error: StorageFailed) -> None:
        self._replicas.raft_journal_failed(error)
