"""The transaction part of one broker process: the product's own coordinator, marker writer and produce.

This module connects them to the simulation: it selects the node to call and delivers the requests.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Coroutine
from functools import partial
from typing import Any, Final, Protocol, cast

from kafkaesque.broker.partitions.group_coordinator import GROUP_TOPIC, GroupCoordinator
from kafkaesque.broker.partitions.partition import Partition
from kafkaesque.broker.partitions.partition_table import PartitionTable
from kafkaesque.broker.partitions.rules.admission import Appended
from kafkaesque.broker.partitions.rules.markers import Marker
from kafkaesque.broker.partitions.transaction_coordinator import MarkerWriter, TransactionShard
from kafkaesque.broker.server.transactional_produce import ADDS_SINCE, TransactionalRequest, Waiting
from kafkaesque.broker.transactions.registry import TransactionRegistry
from kafkaesque.broker.transactions.types import (
    NEW_FLOW,
    AddAnswer,
    EndAnswer,
    EndRequest,
    InitAnswer,
    InitRequest,
    Markers,
    PartitionsRequest,
    TransactionConfig,
)
from kafkaesque.lab.sim.disk import TOPIC
from kafkaesque.lab.sim.loop import SimulatedFuture, SimulatedLoop, as_event_loop
from kafkaesque.lab.sim.schedule import Action
from kafkaesque.model.clock import Clock
from kafkaesque.model.errors import ErrorCode, KafkaError, NotCoordinator, NotLeaderOrFollower
from kafkaesque.model.ids import (
    GroupId,
    LeaderEpoch,
    NodeId,
    PartitionIndex,
    ProducerIdentity,
    TopicPartition,
)

_MARKER_WRITTEN: Final = (ErrorCode.NONE, ErrorCode.INVALID_PRODUCER_EPOCH)


class TransactionHost(Protocol):
    """The node that runs the process."""

    node_id: NodeId

    @property
    def clock(self) -> Clock: ...

    def later(self, delay_us: int, action: Action) -> None: ...

    def reply_scheduler(self) -> Callable[[int, Action], None]: ...

    def sync_latency_us(self) -> int: ...


Work = Callable[["BrokerTransactions"], Coroutine[Any, Any, object]]
Calls = Callable[[TransactionHost, GroupId, Work], SimulatedFuture]
"""Calls the presumed leader of a group. Gives its answer, the error it raised, or None for silence."""


class BrokerTransactions:
    """The transaction part of one process; `partitions` changes over time. Implements CoordinatorClient."""

    def __init__(
        self,
        node: TransactionHost,
        partitions: dict[GroupId, Partition],
        group: GroupId,
        calls: Calls,
    ) -> None:
        self._node = node
        self._partitions = partitions
        self._group = group
        """The group of the coordinator's partition."""
        self._calls = calls
        self.loop = as_event_loop(SimulatedLoop(node))
        self.waiting: Waiting = {}
        self.host: TransactionShard | None = None
        groups = cast(GroupCoordinator, _NoGroups())
        self._writer = MarkerWriter(cast(PartitionTable, self), groups, node.clock)

    def get(self, topic: str, index: PartitionIndex) -> Partition:
        """As PartitionTable.get."""
        partition = self._partitions.get(GroupId(index))
        if partition is None:
            raise NotLeaderOrFollower(f"{topic}-{index} is not on this node")
        partition.check_serves()
        return partition

    def leadership_changed(self) -> None:
        """As in CoordinatorRuntime: a new term needs a new shard."""
        partition = self._partitions.get(self._group)
        leads = partition is not None and partition.leads
        epoch = partition.leader_epoch if partition is not None and leads else None
        if self.host is not None and self.host.epoch != epoch:
            host, self.host = self.host, None
            host.close(NotCoordinator("The coordinator has moved."))
        if self.host is None and partition is not None and epoch is not None:
            self.host = TransactionShard(
                partition, _new_registry, self._node.clock, self.loop, epoch, self._send
            )

    def _hosting(self) -> TransactionShard:
        self.leadership_changed()
        if self.host is None:
            raise NotCoordinator("This is not the correct coordinator.")
        return self.host

    # -- incoming requests ------------------------------------------------------------------------

    async def init(self, request: InitRequest) -> InitAnswer:
        return await self._hosting().ask(
            lambda registry, token, now: registry.init_producer(request, token, now), InitAnswer
        )

    async def add(self, request: PartitionsRequest) -> AddAnswer:
        return await self._hosting().ask_when_ended(
            request.transactional_id,
            lambda registry, token, now: registry.add_partitions(request, token, now),
            AddAnswer,
        )

    async def end(self, request: EndRequest) -> EndAnswer:
        return await self._hosting().ask(
            lambda registry, token, now: registry.end(request, token, now), EndAnswer
        )

    async def mark(self, markers: Markers, epoch: LeaderEpoch, name: TopicPartition) -> ErrorCode:
        written = await self._writer.write(
            markers.producer,
            Marker(markers.is_commit, epoch),
            [name],
            is_epoch_new=markers.flow >= NEW_FLOW,
        )
        return written[name]

    async def produce(self, transactional_id: str, group: GroupId, batch: bytes) -> Appended:
        """Returns once the batch is committed."""
        partition = self.get(TOPIC, PartitionIndex(group))
        request = TransactionalRequest(self, transactional_id, ADDS_SINCE, self.loop)
        records = memoryview(bytearray(batch))
        appended = request.append(partition, records, all_replicas=True)
        if not isinstance(appended, Appended):
            appended = await appended
        committed = partition.commit(appended, all_replicas=True)
        if committed is not None:
            await committed
        return appended

    # -- outgoing requests ------------------------------------------------------------------------

    async def put_partitions(
        self,
        transactional_id: str,
        producer: ProducerIdentity,
        partitions: list[TopicPartition],
        *,
        verify_only: bool,
    ) -> dict[TopicPartition, ErrorCode]:
        request = PartitionsRequest(
            transactional_id=transactional_id, producer=producer, partitions=frozenset(partitions)
        )
        answer = await self._calls(self._node, self._group, lambda broker: broker.add(request))
        code = ErrorCode.COORDINATOR_NOT_AVAILABLE
        if isinstance(answer, AddAnswer):
            code = answer.error
        elif isinstance(answer, KafkaError):
            code = answer.code
        return dict.fromkeys(partitions, code)

    async def _send(self, markers: Markers, epoch: LeaderEpoch) -> Collection[TopicPartition]:
        done = []
        for name in markers.partitions:
            work = partial(BrokerTransactions.mark, markers=markers, epoch=epoch, name=name)
            if await self._calls(self._node, GroupId(name.partition), work) in _MARKER_WRITTEN:
                done.append(name)
        return done


class _NoGroups:
    """There are no consumer groups in a simulation."""

    topic = GROUP_TOPIC


def _new_registry() -> TransactionRegistry:
    return TransactionRegistry(TransactionConfig())
