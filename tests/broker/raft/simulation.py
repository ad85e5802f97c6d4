"""A few nodes, a bad network and disks that forget, driven by one seed; checked after every step.

Small on purpose: one group, plain payloads. `kafkaesque sim` tests a whole broker under faults. A run
has two phases: faults, during which every invariant must hold, and recovery, in which the group must
agree again and make progress.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

from tests.broker.raft.checkers import Checkers
from tests.broker.raft.disk import Disk

from kafkaesque.broker.raft.config import RaftConfig
from kafkaesque.broker.raft.core import Raft
from kafkaesque.broker.raft.membership import ChangeKind, MembershipChange
from kafkaesque.broker.raft.messages import InstallSnapshot, Message
from kafkaesque.broker.raft.ready import Ready
from kafkaesque.broker.raft.types import (
    NO_INDEX,
    EntryKind,
    LogIndex,
    Membership,
    Proposal,
    Refused,
    Role,
    Snapshot,
)
from kafkaesque.model.ids import MemberId

CONFIG = RaftConfig(
    election_timeout_ticks=8,
    heartbeat_ticks=2,
    append_bytes_max=60,
    inflight_messages_max=3,
    inflight_bytes_max=200,
    uncommitted_bytes_max=2000,
    lease_margin_ticks=1,
    promotion_lag_entries_max=5,
    snapshot_resend_ticks=12,
)


@dataclass(frozen=True)
class Faults:
    """The rates of faults, in percent, per message or per tick."""

    drop: int = 8
    duplicate: int = 5
    crash: int = 3
    restart: int = 15
    cut: int = 3
    heal: int = 5
    sync: int = 45
    """The chance that a node's oldest writes reach its disk in a tick."""
    deliveries: int = 6
    """The approximate number of messages delivered in a tick."""
    election_timeout_ticks: int = 8
    proposals: int = 40
    """The chance that a leader gets a proposal in a tick."""
    spite: int = 0
    """The leader is partitioned from one node, or from all as soon as another campaigns."""
    lease_reads: bool = False
    quiesce: bool = False
    """Also: clients are silent for long stretches."""
    membership: int = 0
    """The chance that a leader gets a membership change in a tick."""
    compaction: bool = False


CALM = Faults()
STORM = Faults(drop=15, crash=12, restart=30, cut=8, heal=8, sync=60, deliveries=9)
"""Leaders hardly live long enough to commit, so logs contain uncommitted entries of many terms."""
LEASES = Faults(
    crash=6,
    restart=40,
    cut=0,
    heal=4,
    sync=90,
    deliveries=20,
    election_timeout_ticks=16,
    proposals=4,
    spite=25,
    lease_reads=True,
)
"""Leases are long compared to an election, and leaders are cut off while the others continue."""
PEACE = Faults(drop=0, duplicate=0, crash=0, cut=0, heal=100, sync=100)


@dataclass
class Node:
    node_id: MemberId
    disk: Disk
    raft: Raft
    is_up: bool = True
    applied: list[tuple[LogIndex, object]] = field(default_factory=list)
    commit_hint: LogIndex = NO_INDEX


class Simulation:
    def __init__(self, seed: int, node_count: int, faults: Faults | None = None) -> None:
        self.random = random.Random(seed)
        self.faults = faults or Faults()
        self.config = RaftConfig(
            **{name: getattr(CONFIG, name) for name in CONFIG.__slots__}
            | {
                "election_timeout_ticks": self.faults.election_timeout_ticks,
                "lease_reads": self.faults.lease_reads,
                "quiesce_after_ticks": 6 if self.faults.quiesce else 0,
            }
        )
        voters = tuple(MemberId(number) for number in range(node_count))
        spare = (MemberId(node_count),) if self.faults.membership else ()
        self.nodes = {node: self._start(node, Disk(voters)) for node in voters + spare}
        self.network: list[Message] = []
        self.cuts: set[tuple[MemberId, MemberId]] = set()
        self.checkers = Checkers(self.nodes)
        self.proposed = 0
        self.reads = 0
        self.turns = 0
        self.trace: list[tuple[MemberId, Ready]] = []
        """Every Ready, in the order it was taken."""
        self.ticks = 0

    def _start(self, node_id: MemberId, disk: Disk, commit: LogIndex = NO_INDEX) -> Node:
        raft = Raft(node_id, self.config, disk, self.random.randrange, disk.restart(commit))
        return Node(node_id, disk, raft)

    # Phases

    def run(self, tick_count: int) -> None:
        for self.ticks in range(tick_count):
            self._tick()
            self._turn_of_events()
        self.checkers.at_end()

    def heal(self, tick_count: int = 120) -> None:
        """No more faults: within `ticks` all nodes hold and apply the same entries, new ones included."""
        self.faults = PEACE
        self.cuts.clear()
        for node in self._all():
            self._restart(node)
            node.raft.wake()
        for tick in range(tick_count):
            self._tick()
            for _ in range(3):
                self._sync_all()
                self._deliver_all()
            if tick == tick_count // 2:
                self.checkers.must_have_leader()
                self._propose(self.checkers.leader_node())
        self.checkers.at_end()
        self.checkers.must_agree()

    def _all(self) -> list[Node]:
        return list(self.nodes.values())

    def _up(self) -> list[Node]:
        return [node for node in self.nodes.values() if node.is_up]

    # Events

    def _tick(self) -> None:
        """All clocks run at one rate; the order within a tick is random."""
        nodes = self._up()
        self.random.shuffle(nodes)
        for node in nodes:
            node.raft.tick()
            self._after(node)

    def _turn_of_events(self) -> None:
        roll = self.random.randrange
        faults = self.faults
        for _ in range(roll(2 * faults.deliveries)):
            self._deliver_one()
        for node in self._up():
            if roll(100) < faults.sync:
                self._sync(node, 1 + roll(len(node.disk.pending) + 1))
        is_silent = faults.quiesce and self.ticks % 80 >= 20
        for node in self._up():
            role = node.raft.leadership.role
            if role is Role.LEADER and (not is_silent or roll(100) < 4):
                self._use(node)
            elif role is Role.FOLLOWER and roll(100) < 20:
                self._watch_leader(node)
        if roll(100) < faults.cut:
            self._cut()
        if roll(100) < faults.spite:
            self._spite()
        if roll(100) < faults.heal:
            self.cuts.clear()
        if roll(100) < faults.crash:
            node = self.random.choice(self._all())
            if node.is_up:
                self._crash(node)
        for node in self._all():
            if not node.is_up and roll(100) < faults.restart:
                self._restart(node)

    def _watch_leader(self, node: Node) -> None:
        """A driver sees its links: it reports when the leader's node is unreachable."""
        leader = node.raft.leadership.leader_id
        if leader is not None and (
            not self.nodes[leader].is_up or (leader, node.node_id) in self.cuts
        ):
            node.raft.peer_unreachable(leader)
            self._after(node)

    def _use(self, node: Node) -> None:
        """Requests of clients and operators to a leader."""
        if self.random.randrange(100) < self.faults.proposals:
            self._propose(node)
        if self.random.randrange(100) < self.faults.membership:
            change = MembershipChange(self.random.choice(list(ChangeKind)), self._anyone())
            self._try(lambda: node.raft.propose_membership(change), node)
        roll = self.random.randrange(100)
        if roll < 60:
            self._read(node)
        elif roll < 62:
            self._try(lambda: node.raft.transfer_leadership(self._anyone()), node)
        elif roll < 63:
            node.raft.resign()
            self._after(node)
        elif roll < 66:
            node.raft.peer_unreachable(self._anyone())
            self._after(node)
        elif roll < 70 and self.faults.compaction:
            self._compact(self.random.choice(self._up()))

    def _anyone(self) -> MemberId:
        return self.random.choice(list(self.nodes))

    def _try(self, request: Callable[[], object], node: Node) -> None:
        try:
            request()
        except Refused:
            return
        self._after(node)

    def _propose(self, node: Node) -> None:
        proposals = []
        for _ in range(self.random.randrange(1, 4)):
            self.proposed += 1
            proposals.append(Proposal(f"p{self.proposed}", self.random.randrange(5, 40)))
        self._try(lambda: node.raft.propose(proposals), node)

    def _read(self, node: Node) -> None:
        self.reads += 1
        context = (self.reads, self.checkers.committed_index)
        self._try(lambda: node.raft.read_index(context), node)

    def _compact(self, node: Node) -> None:
        """Retention: the log's start moves up, never beyond what is applied."""
        applied = node.raft.status().applied_index
        if applied > node.disk.first_index and node.is_up:
            index = LogIndex(self.random.randrange(node.disk.first_index, applied + 1))
            term = node.disk.term_at(index)
            membership = node.raft.membership_at(index)
            node.disk.compact(Snapshot(index, term, membership, f"state at {index}"))
            self._after(node)

    # Network

    def _deliver_one(self) -> None:
        """Delivers messages in random order; some are lost and some are duplicated."""
        if not self.network:
            return
        position = self.random.randrange(len(self.network))
        self.network[position], self.network[-1] = self.network[-1], self.network[position]
        message = self.network.pop()
        roll = self.random.randrange(100)
        if roll < self.faults.duplicate and len(self.network) < 200:
            self.network.append(message)
        is_cut = (message.sender, message.to) in self.cuts
        target = self.nodes[message.to]
        if is_cut or not target.is_up or roll >= 100 - self.faults.drop:
            if isinstance(message, InstallSnapshot) and self.random.randrange(2):
                sender = self.nodes[message.sender]
                if sender.is_up:
                    sender.raft.snapshot_failed(message.to)
                    self._after(sender)
            return
        target.raft.step(message)
        self._after(target)

    def _deliver_all(self) -> None:
        waiting, self.network = self.network, []
        for message in waiting:
            target = self.nodes[message.to]
            target.raft.step(message)
            self._after(target)

    def _cut(self) -> None:
        """One direction of one pair, one pair, or one node from all others."""
        ids = list(self.nodes)
        one, other = self.random.sample(ids, 2)
        match self.random.randrange(3):
            case 0:
                self.cuts.add((one, other))
            case 1:
                self.cuts |= {(one, other), (other, one)}
            case 2:
                self.cuts |= {(one, node) for node in ids} | {(node, one) for node in ids}

    def _spite(self) -> None:
        """Partitions the leader at the worst moment, when another node campaigns, and disturbs the third."""
        leaders = [node for node in self._up() if node.raft.leadership.role is Role.LEADER]
        if not leaders:
            return
        victim = min(leaders, key=lambda node: node.raft.leadership.term)
        others = [node for node in self._all() if node is not victim]
        candidates = (Role.PRE_CANDIDATE, Role.CANDIDATE)
        campaigning = [
            node for node in others if node.raft.leadership.role in candidates and node.is_up
        ]
        chosen = others if campaigning or len(leaders) > 1 else others[:1]
        for node in chosen:
            self.cuts |= {(victim.node_id, node.node_id), (node.node_id, victim.node_id)}
        for node in others:
            if campaigning and node.is_up and node not in campaigning and self.random.randrange(2):
                self._crash(node)
                self._restart(node)

    # Disk

    def _sync(self, node: Node, count: int | None = None) -> None:
        token = node.disk.sync(count)
        if token is not None:
            node.raft.synced(token)
            self._after(node)

    def _sync_all(self) -> None:
        for node in self._up():
            self._sync(node)

    def _crash(self, node: Node) -> None:
        node.is_up = False
        node.disk.crash(self.random.randrange)
        self.checkers.crashed(node)

    def _restart(self, node: Node) -> None:
        if node.is_up:
            return
        hint = LogIndex(self.random.randrange(node.commit_hint + 1))
        fresh = self._start(node.node_id, node.disk, hint)
        node.raft, node.is_up = fresh.raft, True
        node.applied = [item for item in node.applied if item[0] < node.disk.first_index]
        self.checkers.restarted(node)
        self._after(node)

    # The driver of one node

    def _after(self, node: Node) -> None:
        """Handle Readies until there are none; the disk is synced at random."""
        self.turns += 1
        node.raft.validate()
        self.checkers.after(node)
        while (ready := node.raft.ready()) is not None:
            self._handle(node, ready)

    def _handle(self, node: Node, ready: Ready) -> None:
        self.trace.append((node.node_id, ready))
        self.checkers.before_write(node, ready)
        node.disk.write(ready)
        for message in ready.messages:
            self.checkers.sent(node, message)
            if (message.sender, message.to) not in self.cuts and len(self.network) < 400:
                self.network.append(message)
        node.commit_hint = max(node.commit_hint, ready.commit_index)
        for read in ready.reads:
            self.checkers.read(read)
        if ready.snapshot is not None:
            node.applied = [(ready.snapshot.index, ready.snapshot.state)]
        if ready.committed is not None:
            self._apply(node, ready.committed.first, ready.committed.last)

    def _apply(self, node: Node, first: LogIndex, last: LogIndex) -> None:
        for index in range(first, last + 1):
            entry = node.disk.written.entry(LogIndex(index))
            if entry.kind is EntryKind.DATA:
                node.applied.append((entry.index, entry.payload))
            elif entry.kind is EntryKind.MEMBERSHIP:
                assert isinstance(entry.payload, Membership)
        self.checkers.applied(node, first, last)
        node.raft.applied(last)
