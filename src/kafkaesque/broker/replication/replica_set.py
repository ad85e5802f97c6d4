"""All groups of a node: one clock, one outbox, one journal, work once per turn of the event loop.

Idle groups sleep and cost nothing; a tick visits only those awake. Whatever happens to a group
marks it, and at the end of the turn each marked group is processed once: appends that came
together are written, sent and synced together.
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
"""A dead process is noticed by its broken links, at once; these times are for hosts that fall
silent, and long enough that a busy event loop is not taken for one."""
CONTROLLER_CONFIG = replace(RAFT_CONFIG, commit_broadcast=True)
"""Every broker acts on the controller's log as soon as it can."""

SLEEPER_WOKEN_EVERY_TICKS = 10
"""One group after the other, so that no error in anyone's reasoning can make one sleep for ever, and
that the messages of idle groups do not grow with their number."""


EARLY_MESSAGES_MAX = 20_000
EARLY_KEPT_TICKS = 50


class Outbox(Protocol):
    def send(
        self, node: NodeId, group: GroupId, message: Message, blobs: Sequence[Blob]
    ) -> None: ...

    def lease_until(self, node: NodeId) -> float:
        """Monotonic time until which `node` takes us for alive."""


class Syncer(Protocol):
    logs_lost: Callable[[Sequence[LogLost]], None]
    """Told of logs that could not be synced though nobody had asked for that."""

    @property
    def journal(self) -> SyncJournal | None:
        """Where many logs are synced at once; None if each syncs its own file."""

    def ask(self, log: Syncable) -> None: ...


class Prefixes(Protocol):
    """See `prefix_copies`."""

    def fetch(self, replica: Replica, message: InstallSnapshot) -> None: ...

    def serve(self, body: bytes) -> bytes: ...


class _Ticks:
    __slots__ = ("count", "times")

    def __init__(self, now: float) -> None:
        self.count = 0
        self.times = deque((now,), maxlen=RAFT_CONFIG.heartbeat_ticks + 1)
        """Of the newest, oldest first: within so many every group that is awake has spoken."""


class ReplicaSet:
    """`call_soon` runs a function at the end of this turn of the event loop."""

    __slots__ = (
        "_awake",
        "_call_soon",
        "_clock",
        "_damaged",
        "_early",
        "_fail",
        "_is_turn_due",
        "_journal_sync",
        "_marked",
        "_replicas",
        "_syncer",
        "_ticks",
        "_waiting",
        "journal",
        "member",
        "outbox",
        "prefixes",
    )

    outbox: Outbox
    """Set before the first group is added."""
    prefixes: Prefixes
    """Likewise, where logs are cleaned: elsewhere nobody is sent one that was."""

    def __init__(
        self,
        member: MemberId,
        journal: RaftJournal,
        syncer: Syncer,
        clock: Clock,
        call_soon: Callable[[Callable[[], None]], object],
        fail: Callable[[BaseException], None],
    ) -> None:
        self.member = member
        self.journal = journal
        self._syncer = syncer
        syncer.logs_lost = self.logs_lost
        self._clock = clock
        self._call_soon = call_soon
        self._fail = fail
        """The node cannot go on: the journal is every group's."""
        self._replicas: dict[GroupId, Replica] = {}
        self._awake: dict[Replica, None] = {}
        self._marked: dict[Replica, None] = {}
        self._waiting: dict[Replica, None] = {}
        """For the journal."""
        self._early: dict[tuple[GroupId, MemberId], Message] = {}
        """For groups that may be about to be made here."""
        self._damaged: dict[Replica, None] = {}
        self._is_turn_due = False
        self._journal_sync = _JournalSync(self)
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
    def batch_journal(self) -> SyncJournal | None:
        return self._syncer.journal

    def attach(self, group: GroupId, log: Log) -> None:
        """A log that was just opened may be synced with others, and what it loses is noted."""
        if self.batch_journal is not None:
            self.batch_journal.attach(group, log)

    def restore(self, group: GroupId, log: Log) -> None:
        """A log that lost what its files had not for certain gets it from elsewhere. Blocking."""
        facts = self.journal.facts(group)
        if self.batch_journal is not None and facts is not None:
            self.batch_journal.restore(group, log, facts.start.offset)

    def close_journals(self, *, clean: bool) -> None:
        """When all logs are closed: `clean` says that each of them is whole in its own files."""
        self.journal.close(clean=clean)
        if self.batch_journal is not None:
            self.batch_journal.close(clean=clean)

    def logs_lost(self, lost: Iterable[LogLost]) -> None:
        """Their own files could not be synced."""
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
        """Whether `replica` leads and no one else can have been elected yet.

        A majority answered pings that we sent a moment ago, and whoever did elects nobody else
        for a while (docs/RAFT.md, Leases). A process that was stopped and goes on finds that the
        while is over; then its links break, and pings over new ones say nothing of a group until
        its members have answered in this term.
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

    def spoke_at(self) -> float:
        """Every group that is led here and awake has spoken to its members since then: it does so
        every few ticks, and with the first of its term. (Asleep, they rely on no clock.)"""
        return self._ticks.times[0]

    # -- what the node brings --------------------------------------------------------------------

    def step(self, group: GroupId, message: Message) -> None:
        """A message from a peer. For a group that is not here it is as if lost, except for the
        first ones: a new group begins on all its nodes at about the same time, and the election
        should not have to wait for a timeout because one was quicker."""
        replica = self._replicas.get(group)
        if replica is not None:
            replica.step(message)
        elif len(self._early) < EARLY_MESSAGES_MAX and isinstance(message, PreVote):
            self._early[group, message.sender] = message

    def tick(self) -> None:
        """Once every TICK_SECONDS of monotonic time. After a stall of the process the ticks that
        were missed are not made up for: a busy event loop is no reason for an election."""
        self._ticks.count += 1
        self._ticks.times.append(self._clock.monotonic())
        if self.journal.failure is not None:
            # Whoever opened a group may have found out: nothing else would stop the node then.
            self._fail(StorageFailed(self.journal.failure))
            return
        if self._waiting:
            self._syncer.ask(self._journal_sync)
        if self._ticks.count % EARLY_KEPT_TICKS == 0:
            self._early.clear()
        if self._ticks.count % SLEEPER_WOKEN_EVERY_TICKS == 0 and self._replicas:
            # The one that was visited longest ago: dicts keep their order.
            group, sleeper = next(iter(self._replicas.items()))
            self._replicas[group] = self._replicas.pop(group)
            sleeper.raft.wake()
            self._awake[sleeper] = None
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
        """Messages to `node` were lost on our side: those that we lead send again."""
        for replica in self:
            if replica.standing.role is Role.LEADER:
                for member in replica.membership.nodes:
                    if node_of(member) == node:
                        replica.peer_unreachable(member)

    # -- what replicas ask for -------------------------------------------------------------------

    def touch(self, replica: Replica) -> None:
        self._marked[replica] = None
        self._awake[replica] = None
        if not self._is_turn_due:
            self._is_turn_due = True
            self._call_soon(self._turn)

    def _turn(self) -> None:
        """Process whatever was marked, and what that marks in turn."""
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

    def sync_journal(self, replica: Replica) -> None:
        self._waiting[replica] = None
        self._syncer.ask(self._journal_sync)

    def sync_log(self, replica: Replica) -> None:
        self._syncer.ask(replica)

    def damaged(self, replica: Replica) -> None:
        self._damaged[replica] = None

    def fetch_prefix(self, replica: Replica, message: InstallSnapshot) -> None:
        self.prefixes.fetch(replica, message)

    def take_damaged(self) -> list[Replica]:
        """Those in which somebody has met damage since the last call."""
        damaged, self._damaged = self._damaged, {}
        return list(damaged)

    def send(self, group: GroupId, message: Message, blobs: Sequence[Blob]) -> None:
        self.outbox.send(node_of(message.to), group, message, blobs)

    def now_ms(self) -> int:
        return self._clock.wall_ms()

    def monotonic(self) -> float:
        return self._clock.monotonic()

    def journal_synced(self) -> None:
        waiting, self._waiting = self._waiting, {}
        for replica in waiting:
            replica.journal_synced()

    def journal_failed(self, error: StorageFailed) -> None:
        """A full disk may get room: those who wait are asked for again with the next tick."""
        if self.journal.failure is not None:
            self._fail(error)


class _JournalSync:
    """The journal as something that a flusher syncs."""

    __slots__ = ("_replicas",)

    def __init__(self, replicas: ReplicaSet) -> None:
        self._replicas = replicas

    def sync(self) -> Offset:
        return Offset(self._replicas.journal.sync())

    def share(self) -> Share | None:
        return None

    def synced(self, _: Offset) -> None:
        self._replicas.journal_synced()

    def sync_failed(self, error: StorageFailed) -> None:
        self._replicas.journal_failed(error)
