"""The contents of one life of a broker process: journal, replicas, partitions, the controller.

They are opened in the product's order; a replica whose storage failed is reopened. The node starts and
ends processes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Final, Protocol
from uuid import UUID

from kafkaesque.broker.cluster.scrubber import Scrubber
from kafkaesque.broker.partitions.environment import Changes, Environment
from kafkaesque.broker.partitions.partition import Partition
from kafkaesque.broker.partitions.producer_state import load_producers
from kafkaesque.broker.raft.config import RaftConfig
from kafkaesque.broker.raft.core import Raft
from kafkaesque.broker.replication.entry_log import EntryLog
from kafkaesque.broker.replication.opening import first_start, sync_found
from kafkaesque.broker.replication.raft_journal import RaftJournal
from kafkaesque.broker.replication.replica import Replica
from kafkaesque.broker.replication.replica_set import PeerOutbox, ReplicaSet
from kafkaesque.broker.replication.rules.state_machine import StateMachine
from kafkaesque.broker.replication.succession import Succession
from kafkaesque.broker.replication.sync_journal import SyncJournal
from kafkaesque.broker.replication.sync_journal_recovery import recover_sync_journal
from kafkaesque.broker.storage.config import LogConfig
from kafkaesque.broker.storage.log import Log
from kafkaesque.broker.storage.open_files import OpenFiles
from kafkaesque.lab.sim.broker_transactions import BrokerTransactions, Calls
from kafkaesque.lab.sim.controller import SimulatedController
from kafkaesque.lab.sim.disk import JOURNAL_PATH, TOPIC, SimulatedDisk, log_path
from kafkaesque.lab.sim.ground_truth import InvariantViolation
from kafkaesque.lab.sim.loop import SimulatedFuture, SimulatedLoop, as_event_loop
from kafkaesque.lab.sim.network import SimulatedNetwork
from kafkaesque.lab.sim.observer import LogWitness, Observer
from kafkaesque.lab.sim.schedule import (
    MILLISECOND_US,
    SECOND_US,
    Action,
    EventSchedule,
    NodeClock,
    Trace,
)
from kafkaesque.lab.sim.syncer import SimulatedSyncer
from kafkaesque.lab.sim.view import ReplicaView
from kafkaesque.model.errors import StorageFailed, check
from kafkaesque.model.ids import (
    CONTROLLER_GROUP,
    GroupId,
    MemberId,
    NodeId,
    Offset,
    PartitionIndex,
    TopicId,
    TopicPartition,
    node_of,
)
from kafkaesque.model.settings import TopicConfig

TURN_US_MAX: Final = 300
"""The length of an event loop iteration: events within it are processed together."""
REOPEN_US: Final = 150 * MILLISECOND_US
SCRUB_US: Final = 80 * MILLISECOND_US
TOPIC_CONFIG: Final = TopicConfig()
PRODUCT_TIME_RATIO: Final = 5
"""Ratio of the product's timeouts (election, silence) to those in the simulation."""
_FILES_MAX: Final = 12
"""Few, so that files are closed and reopened all the time."""
_JOURNAL_CHECKPOINT_BYTES: Final = 500
_SYNC_JOURNAL_FILE_BYTES: Final = 2_500


@dataclass(frozen=True, slots=True)
class SimulationSetting:
    """Settings and services shared by all nodes of a simulation."""

    schedule: EventSchedule
    trace: Trace
    network: SimulatedNetwork
    observer: Observer
    groups: Sequence[GroupId]
    first_members: Sequence[MemberId]
    raft_config: RaftConfig
    log_config: LogConfig
    uses_codec: bool
    """Messages are encoded and decoded by replication/peer_codec: slower, so not in every run."""
    journal_logs_min: int
    """The number of logs from which a sync round uses the sync journal."""
    has_flips: bool
    """Bits flip on some disk, so damage is not a violation."""
    coordinator: GroupId | None
    """The transaction coordinator's partition, if there are transactions."""
    calls: Calls
    """Sends transaction requests from node to node."""


class ProcessHost(PeerOutbox, Protocol):
    """The node that runs the process."""

    node_id: NodeId
    setting: SimulationSetting
    disk: SimulatedDisk
    clock: NodeClock
    random: Random

    @property
    def member(self) -> MemberId: ...

    def later(self, delay_us: int, action: Action) -> None: ...

    def reply_scheduler(self) -> Callable[[int, Action], None]: ...

    def sync_latency_us(self) -> int: ...

    def fail(self, error: BaseException) -> None: ...

    def request_batch(self, node: NodeId, body: bytes) -> SimulatedFuture: ...


class SimulatedProcess:
    """One process, from `open` until the node ends it."""

    def __init__(self, node: ProcessHost) -> None:
        self._node = node
        self._files = OpenFiles(_FILES_MAX, node.disk)
        self.partitions: dict[GroupId, Partition] = {}
        self.controller: SimulatedController | None = None
        self.views: dict[GroupId, ReplicaView] = {}
        journal = RaftJournal.open(
            JOURNAL_PATH, self._files, first_checkpoint_bytes=_JOURNAL_CHECKPOINT_BYTES
        )
        recover_sync_journal(JOURNAL_PATH, self._files, journal.starts())
        sync_journal = SyncJournal(
            JOURNAL_PATH,
            self._files,
            file_size_bytes_max=_SYNC_JOURNAL_FILE_BYTES,
            logs_min=node.setting.journal_logs_min,
        )
        syncer = SimulatedSyncer(
            node.later,
            node.sync_latency_us,
            sync_journal,
            lambda lost: self.replicas.logs_lost(lost),
        )
        self.replicas = ReplicaSet(
            node.member,
            journal,
            syncer,
            node,
            lambda replica, message: check(False, "nothing is compacted here"),
            node.clock,
            lambda action: node.later(node.random.randrange(TURN_US_MAX), action),
            node.fail,
        )
        self.scrubber = Scrubber(self.replicas, self._call)
        self.transactions: BrokerTransactions | None = None
        if node.setting.coordinator is not None:
            self.transactions = BrokerTransactions(
                node, self.partitions, node.setting.coordinator, node.setting.calls
            )
        is_up = partial(node.setting.network.is_up, node.node_id)
        self._succession = Succession(self.replicas, is_up, self._call_later)

    def open(self) -> None:
        journal = self.replicas.raft_journal
        for group in self._node.setting.groups:
            if journal.facts(group) is None:
                journal.create(group, first_start(self._node.setting.first_members))
            self._open_replica(group)
        if self._node.setting.has_flips:
            self._node.later(SCRUB_US, self._scrub)

    def _open_replica(self, group: GroupId) -> None:
        """Opens a replica as PartitionTable does, with seeded randomness and a witness of every write."""
        node, journal = self._node, self.replicas.raft_journal
        setting, observer = node.setting, node.setting.observer
        log = Log.open(log_path(group), setting.log_config, self._files, clean=False)
        self.replicas.attach(group, log)
        entries = EntryLog.open(group, log, journal, is_clean=False)
        sync_found(entries, journal)
        restart = entries.restart()
        raft = Raft(node.member, setting.raft_config, entries, node.random.randrange, restart)
        truth = observer.replica_truth(node.node_id, node.member, group, node.disk)
        view = ReplicaView(node.node_id, node.member, observer.groups[group], truth, entries, raft)
        observer.opened(view)
        entries.witness = LogWitness(observer, view, journal)

        def new_replica(machine: StateMachine) -> Replica:
            return Replica(group, raft, entries, self.replicas, machine)

        if group == CONTROLLER_GROUP:
            self.controller = self._new_controller(group, entries, new_replica)
            replica = self.controller.replica
        else:
            self.partitions[group] = self._new_partition(group, entries, new_replica)
            replica = self.partitions[group].replica
        self.views[group] = view
        self.replicas.add(replica)

    def _new_controller(
        self, group: GroupId, entries: EntryLog, new_replica: Callable[[StateMachine], Replica]
    ) -> SimulatedController:
        node = self._node
        nodes = [node_of(member) for member in node.setting.first_members]
        on_applied = node.setting.observer.tables_at
        return SimulatedController(
            entries.log,
            node.clock,
            nodes,
            lambda error: self._storage_failed(group, error),
            on_applied,
            new_replica,
        )

    def _new_partition(
        self, group: GroupId, entries: EntryLog, new_replica: Callable[[StateMachine], Replica]
    ) -> Partition:
        node = self._node
        restart = entries.restart()
        committed = max(restart.commit_index, restart.applied_index)
        moved = self._coordinator_moved if group == node.setting.coordinator else None
        leadership_changes = _LeadershipChanges(
            lambda error: self._storage_failed(group, error), moved
        )
        loop = as_event_loop(SimulatedLoop(node))
        return Partition(
            TopicPartition(TOPIC, PartitionIndex(group)),
            TopicId(UUID(int=group)),
            load_producers(entries),
            TOPIC_CONFIG,
            entries.end_offset_of(committed),
            Environment(loop, node.clock, self.replicas, leadership_changes, True, "basic"),
            new_replica,
        )

    def _coordinator_moved(self) -> None:
        if self.transactions is not None:
            self._node.later(0, self.transactions.leadership_changed)

    # Links

    def unreachable(self, peer: NodeId) -> None:
        """As in cluster/cluster: the remaining nodes become candidates, one after the other."""
        self.replicas.unreachable(peer)
        self._succession.lost(peer)

    def _call_later(self, seconds: float, action: Action) -> None:
        self._node.later(int(seconds * SECOND_US / PRODUCT_TIME_RATIO), action)

    # Storage failures

    def _storage_failed(self, group: GroupId, error: StorageFailed) -> None:
        """The storage of a replica failed: it is reopened and recovered."""
        self._node.setting.trace.note(f"n{self._node.node_id} g{group} is lost: {error}")
        view = self.views.pop(group, None)
        self.partitions.pop(group, None)
        if group == CONTROLLER_GROUP:
            self.controller = None
        if view is not None:
            self.replicas.remove(group)
            self._node.later(REOPEN_US, lambda: self._reopen(group, view.entries.log))

    def _reopen(self, group: GroupId, log: Log) -> None:
        """As PartitionTable._reopen_blocking: after a failed sync, only data that was synced before
        counts."""
        if group in self.views:
            return
        config = self._node.setting.log_config
        try:
            log.close(clean=False)
            if log.failure is not None:
                found = Log.open(log_path(group), config, self._files, clean=False)
                found.truncate_to(max(log.file_synced_offset, found.log_start_offset))
                self.replicas.restore(group, found)
                found.close(clean=False)
            self._open_replica(group)
        except StorageFailed as error:
            self._node.setting.trace.note(f"n{self._node.node_id} cannot open {group}: {error}")
            self._node.later(REOPEN_US, lambda: self._reopen(group, log))

    # Maintenance

    def trim(self, partition: Partition, offset: Offset) -> None:
        """Deletes records before `offset`: on all replicas if this node leads, else only here."""
        work = partition.delete_before(offset) if partition.leads else partition._trim(offset)
        SimulatedLoop(self._node).create_task(work)

    def _scrub(self) -> None:
        loop = SimulatedLoop(self._node)
        loop.create_task(self.scrubber.check_damaged())
        loop.create_task(self.scrubber.step())
        self._node.later(SCRUB_US, self._scrub)

    async def _call(self, node: NodeId, body: bytes) -> bytes:
        answer = await self._node.request_batch(node, body)
        return answer if isinstance(answer, bytes) else b""

    def check_sound(self) -> None:
        """Damage that no fault caused is a violation."""
        if self.replicas._damaged and not self._node.setting.has_flips:
            groups = [replica.group for replica in self.replicas.take_damaged()]
            text = f"node {self._node.node_id}: {groups}"
            raise InvariantViolation("nothing is damaged by itself", text)


class _LeadershipChanges(Changes[Partition]):
    """Handles partition failures, as the node's supervisor does, and leadership changes of the
    coordinator's partition."""

    __slots__ = ("_lost", "_moved")

    def __init__(self, lost: Callable[[StorageFailed], None], moved: Action | None) -> None:
        super().__init__()
        self._lost = lost
        self._moved = moved

    def add(self, item: Partition) -> None:
        if item.failure is not None:
            self._lost(item.failure)
        if self._moved is not None:
            self._moved()
