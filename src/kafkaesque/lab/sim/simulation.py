"""One run from one seed: a cluster with its clients and faults, in two phases.

In the fault phase faults occur, and no invariant may break. In the recovery phase the faults are lifted, and
the cluster must recover in time.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Final

from kafkaesque.broker.partitions.partition import Partition
from kafkaesque.broker.raft.config import RaftConfig
from kafkaesque.broker.storage.config import LogConfig
from kafkaesque.lab.sim.clients import SimulatedAdmin, SimulatedProducer, SimulatedReader
from kafkaesque.lab.sim.cluster import SimulatedCluster
from kafkaesque.lab.sim.controller import Operation
from kafkaesque.lab.sim.convergence import Convergence
from kafkaesque.lab.sim.faults import FaultInjector
from kafkaesque.lab.sim.ground_truth import InvariantViolation
from kafkaesque.lab.sim.network import NetworkCallbacks, SimulatedNetwork
from kafkaesque.lab.sim.node import SimulatedNode
from kafkaesque.lab.sim.observer import Observer
from kafkaesque.lab.sim.operator import Operator
from kafkaesque.lab.sim.partition import ProduceOutcome, ProduceResult, Reply, produce, readable
from kafkaesque.lab.sim.process import SimulationSetting
from kafkaesque.lab.sim.profile import Profile, profile_of
from kafkaesque.lab.sim.schedule import (
    MILLISECOND_US,
    SECOND_US,
    EventSchedule,
    NodeClock,
    Trace,
    random_stream,
)
from kafkaesque.lab.sim.transaction_requests import TransactionRequests
from kafkaesque.lab.sim.transactor import ClientProcess, SimulatedTransactor
from kafkaesque.lab.sim.view import ReplicaView
from kafkaesque.model.errors import CorruptMessage, InvariantBroken
from kafkaesque.model.ids import (
    CONTROLLER_GROUP,
    FIRST_PARTITION_GROUP,
    GroupId,
    NodeId,
    Offset,
    ProducerId,
    member_id,
)
from kafkaesque.records.batch import iter_batches, verify_crc

RECOVERY_US_MAX: Final = 15 * SECOND_US
"""The cluster must have recovered after this much time without faults."""
ADMIN_INTERVAL_US: Final = 150 * MILLISECOND_US
READ_INTERVAL_US: Final = 50 * MILLISECOND_US
LOOK_EVERY_US: Final = 200 * MILLISECOND_US


class Simulation:
    """Built from a seed, run once."""

    def __init__(
        self,
        seed: int,
        profile: Profile | None = None,
        show: Callable[[str], None] | None = None,
    ) -> None:
        self.seed = seed
        self.profile = profile or profile_of(seed)
        self.schedule = EventSchedule()
        self.trace = Trace(self.schedule, show)
        ids = [NodeId(number) for number in range(self.profile.node_count)]
        self.groups, coordinator = _groups_of(self.profile)
        self.network = SimulatedNetwork(self.schedule, random_stream(seed, "network"), ids)
        self.observer = Observer(self.groups, coordinator)
        self._requests = TransactionRequests(self, random_stream(seed, "transactions"))
        setting = SimulationSetting(
            self.schedule,
            self.trace,
            self.network,
            self.observer,
            self.groups,
            [member_id(node, 0) for node in ids],
            _raft_config(self.profile),
            LogConfig(
                segment_bytes=self.profile.segment_bytes,
                index_interval_bytes=200,
                preallocate_bytes=self.profile.preallocate_bytes,
                preallocate_after_bytes=0,
            ),
            self.profile.uses_codec,
            self.profile.journal_logs_min,
            "flip_bit" in self.profile.weights,
            coordinator,
            self._requests.send_between,
        )
        self.nodes = self._make_nodes(ids, setting)
        self.operator = Operator(self.nodes, self.groups, coordinator, self.schedule)
        self.producers = self._make_producers()
        self._cluster = SimulatedCluster(
            seed,
            self.profile,
            self.schedule,
            self.trace,
            self.network,
            self.observer,
            self.groups,
            self.nodes,
            self.operator,
            self.producers,
            self._make_transactors(coordinator),
        )
        self._faults = FaultInjector(self._cluster)
        self.admin = SimulatedAdmin(self, self.schedule, random_stream(seed, "admin"))
        self.readers = [
            SimulatedReader(group, self, self.schedule, random_stream(seed, f"reader {group}"))
            for group in self.partitions
        ]

    def _make_nodes(self, ids: list[NodeId], setting: SimulationSetting) -> list[SimulatedNode]:
        drift, most = random_stream(self.seed, "clocks"), self.profile.clock_drift_ppm_max
        nodes = [
            SimulatedNode(
                node, setting, NodeClock(self.schedule, drift.randint(-most, most)), self.seed
            )
            for node in ids
        ]
        for node in nodes:
            node.neighbours = nodes
        return nodes

    @property
    def partitions(self) -> list[GroupId]:
        """The groups of client partitions: neither the controller's nor the coordinator's."""
        return self.groups[1 : 1 + self.profile.partition_count]

    def _make_transactors(self, coordinator: GroupId | None) -> list[SimulatedTransactor]:
        if coordinator is None:
            return []
        return [
            SimulatedTransactor(
                f"tx-{number}",
                coordinator,
                self.partitions,
                self._requests,
                random_stream(self.seed, f"transactor {number}"),
            )
            for number in range(self.profile.transactors)
        ]

    def _make_producers(self) -> list[SimulatedProducer]:
        producers: list[SimulatedProducer] = []
        for group in self.partitions:
            for _ in range(self.profile.producers_per_partition):
                number = len(producers)
                random = random_stream(self.seed, f"producer {number}")
                producers.append(
                    SimulatedProducer(ProducerId(1000 + number), group, self, self.schedule, random)
                )
        return producers

    def run(self) -> None:
        """Raises InvariantViolation if an invariant breaks, including the product's own checks."""
        try:
            self._run_fault_phase()
            self._run_recovery_phase()
        except InvariantBroken as error:
            raise InvariantViolation("the product's own checks", str(error)) from error

    def _run_fault_phase(self) -> None:
        self.network.link_quality = self.profile.link_quality
        self.network.connect(
            NetworkCallbacks(
                lambda node: self.nodes[node].is_responsive,
                lambda envelope: self.nodes[envelope.to].deliver(envelope),
                lambda node, peer: self.nodes[node].unreachable(peer),
                lambda node, peer: self.nodes[node].reachable(peer),
            )
        )
        for node in self.nodes:
            node.start()
        for producer in self.producers:
            producer.start(self.profile.produce_interval_us)
        for transactor in self._cluster.transactors:
            transactor.start(ClientProcess(self.schedule, NodeClock(self.schedule, 0)))
        for reader in self.readers:
            reader.start(READ_INTERVAL_US)
        self.admin.start(ADMIN_INTERVAL_US)
        self.operator.start()
        self._faults.start()
        self.schedule.run_until(self.profile.fault_phase_us)

    def _run_recovery_phase(self) -> None:
        self.trace.note("peace")
        self._faults.stop()
        self.operator.include_all_nodes()
        convergence = Convergence(self._cluster)
        end_us = self.schedule.now_us + RECOVERY_US_MAX
        while self.schedule.now_us < end_us:
            self.schedule.run_until(self.schedule.now_us + LOOK_EVERY_US)
            if convergence.is_reached():
                convergence.check_contents()
                self.trace.note("all is well")
                return
        raise InvariantViolation("progress in peace", convergence.what_is_missing)

    # Requests of clients

    def produce(self, node: NodeId, group: GroupId, batch: bytes, reply: Reply) -> None:
        """A request arrives at a node. There is no answer if its process is dead."""
        target = self.nodes[node]

        def perform() -> None:
            partition = target.partitions.get(group)
            if partition is None:
                reply(ProduceResult(ProduceOutcome.REFUSED, None, "no such partition"))
            else:
                produce(partition, batch, answer)

        def answer(result: ProduceResult) -> None:
            if result.outcome is ProduceOutcome.COMMITTED and result.fact is not None:
                # The checkers run first: an acknowledgement must be true when it is sent.
                target.observe()
                self.observer.acknowledged(self.observer.groups[group], result.fact)
            self.schedule.after(200, lambda: reply(result))

        target.run(perform)

    def administer(
        self, operation: Operation, reply: Callable[[ProduceResult, object], None], random: Random
    ) -> None:
        """An operation arrives at the presumed leader of the controller's group."""
        target = self.nodes[self.guess_leader(CONTROLLER_GROUP, random)]

        def perform() -> None:
            process = target.process
            if process is not None and process.controller is not None:
                process.controller.perform(operation, reply)

        target.run(perform)

    def read(self, node: NodeId, group: GroupId, offset: Offset, floor: Offset) -> Offset | None:
        """A fetch at one node; returns its high watermark, None if the node does not serve the group."""
        target = self.nodes[node]
        seen: list[Offset] = []
        target.run(lambda: self._read(target, group, offset, floor, seen))
        return seen[0] if seen else None

    def _read(
        self, node: SimulatedNode, group: GroupId, offset: Offset, floor: Offset, seen: list[Offset]
    ) -> None:
        partition, view = node.partitions.get(group), node.views.get(group)
        high_watermark = readable(partition) if partition is not None else None
        if partition is None or view is None or high_watermark is None:
            return
        node.observe()
        self.observer.check_watermarks(view, partition.log, high_watermark)
        start = max(offset, partition.log_start_offset)
        if start <= high_watermark:
            self._check_read(view, partition, start)
        is_ordered = self.network.link_quality.is_ordered
        if self.observer.transactions is not None:
            self.observer.transactions.read(view, partition, start, is_ordered=is_ordered)
        if is_ordered:
            self.observer.stale_reads.read_to(view, floor, high_watermark)
        seen.append(high_watermark)

    def _check_read(self, view: ReplicaView, partition: Partition, start: Offset) -> None:
        try:
            read = partition.read(start, 2_000, at_least_one=True)
        except CorruptMessage:
            if "flip_bit" in self.profile.weights:
                return
            raise
        for position, header in iter_batches(read.records):
            verify_crc(read.records, header, position)
            self.observer.reads.read(view, header)

    def acknowledged_offset(self, group: GroupId) -> Offset:
        return self.observer.groups[group].acked_offset

    def guess_leader(self, group: GroupId, random: Random) -> NodeId:
        """The leader as clients see it, which is sometimes outdated."""
        leader = self.operator.leader(group) if random.random() < 0.8 else None
        return leader[0].node_id if leader is not None else random.choice(self.nodes).node_id


def _groups_of(profile: Profile) -> tuple[list[GroupId], GroupId | None]:
    """The groups of the controller, of the partitions and, last, of the coordinator if there is one."""
    count = profile.partition_count + (profile.transactors > 0)
    groups = [GroupId(FIRST_PARTITION_GROUP + number) for number in range(count)]
    return [CONTROLLER_GROUP, *groups], groups[-1] if profile.transactors else None


def _raft_config(profile: Profile) -> RaftConfig:
    """Shorter timeouts than the product's, so that more happens in less time."""
    return RaftConfig(
        election_timeout_ticks=8,
        heartbeat_ticks=2,
        append_bytes_max=1_000,
        inflight_messages_max=4,
        inflight_bytes_max=4_000,
        uncommitted_bytes_max=20_000,
        quiesce_after_ticks=profile.quiesce_after_ticks,
        promotion_lag_entries_max=5,
        snapshot_resend_ticks=20,
    )
