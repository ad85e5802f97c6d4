"""Calls between brokers for a transaction: Kafka requests over the links between them.

The coordinator of a transactional id and the leaders of its partitions may be on any broker. A
request to ourselves is a function call; a request to another broker is the one that Apache Kafka
would send (WriteTxnMarkers, AddPartitionsToTxn), in a frame of the link.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Collection, Iterable
from time import monotonic
from typing import TypeVar

from kafkaesque.broker.cluster.cluster import Cluster, ServeRequest
from kafkaesque.broker.partitions.group_coordinator import GroupShard
from kafkaesque.broker.partitions.rules.markers import Marker
from kafkaesque.broker.partitions.transaction_coordinator import (
    TRANSACTION_TOPIC,
    MarkerWriter,
    TransactionCoordinator,
)
from kafkaesque.broker.replication.peer_calls import PeerError
from kafkaesque.broker.server.call import Call, CloseConnection
from kafkaesque.broker.server.transactional_produce import Waiting
from kafkaesque.broker.transactions.connection_fence import ANY_CONNECTION, NewestConnections
from kafkaesque.broker.transactions.registry import TransactionRegistry
from kafkaesque.broker.transactions.types import (
    NEW_FLOW,
    AddAnswer,
    Markers,
    PartitionsRequest,
    TransactionConfig,
    TransactionEffects,
    VerifyAnswer,
)
from kafkaesque.model.clock import Clock, Moment
from kafkaesque.model.errors import (
    CoordinatorNotAvailable,
    ErrorCode,
    KafkaError,
    ProtocolError,
)
from kafkaesque.model.ids import (
    LeaderEpoch,
    NodeId,
    PartitionIndex,
    ProducerIdentity,
    TopicPartition,
)
from kafkaesque.model.settings import BrokerConfig
from kafkaesque.wire.codec import decode_response, encode_request_frame
from kafkaesque.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from kafkaesque.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from kafkaesque.wire.table import Request, Response

logger = logging.getLogger(__name__)

R = TypeVar("R", bound=Response)

REQUEST_KINDS = range(32, 40)
"""The kinds of link calls that carry a Kafka request; see `peer_inbox`."""
_REQUEST = REQUEST_KINDS.start
CALL_SECONDS = 30.0
"""Longer than an election, because a call that timed out may still be carried out."""
CALLERS_MAX = 100_000
OLDER_CONNECTION = "the producer has used a newer connection, or another coordinator"
_LENGTH_BYTES = 4
_MARKERS_VERSION = 2
_PARTITIONS_VERSION = 5
_OVER = frozenset(
    (
        ErrorCode.NONE,
        # The topic was deleted, or the partition has a later epoch: the marker was written before,
        # and the transaction is no longer open there.
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.INVALID_PRODUCER_EPOCH,
    )
)


class RequestsOfBrokers:
    """Serves the Kafka requests that other brokers send over their links (REQUEST_KINDS).

    Implements `peer_inbox.PeerService`.
    """

    __slots__ = ("_serve_request",)

    def __init__(self, serve_request: ServeRequest) -> None:
        self._serve_request = serve_request

    def call(self, node: NodeId, kind: int, body: bytes) -> Awaitable[bytes]:
        return self._serve_request(body)

    def post(self, node: NodeId, kind: int, body: bytes) -> None:
        raise ProtocolError(f"post of unknown kind {kind}")


async def _call_broker(
    cluster: Cluster, node: NodeId, request: Request, version: int, response: type[R]
) -> R:
    """Sends a request to another broker's `RequestsOfBrokers`."""
    frame = b"".join(encode_request_frame(request, version, 0, None))
    reply = await cluster.links.call(node, _REQUEST, frame[_LENGTH_BYTES:], CALL_SECONDS)
    return decode_response(response, memoryview(reply)[_LENGTH_BYTES:], version)


class MarkerSender:
    """Has the leaders of a transaction's partitions write its markers."""

    __slots__ = ("_cluster", "_writer")

    def __init__(self, cluster: Cluster, writer: MarkerWriter) -> None:
        """`writer` writes the markers of the partitions that this broker leads."""
        self._cluster = cluster
        self._writer = writer

    async def send(
        self, markers: Markers, coordinator_epoch: LeaderEpoch
    ) -> Collection[TopicPartition]:
        """Returns the partitions that have the marker now. The caller retries the others."""
        done: list[TopicPartition] = []
        by_node: dict[NodeId, list[TopicPartition]] = {}
        for name in markers.partitions:
            if name.topic not in self._cluster.tables.by_name:
                done.append(name)
            elif (leader := self._cluster.leader_of(*name)) is not None:
                by_node.setdefault(leader.node_id, []).append(name)
        written = await asyncio.gather(
            *(
                self._try(node, markers, coordinator_epoch, partitions)
                for node, partitions in by_node.items()
            )
        )
        return [*done, *(name for names in written for name in names)]

    async def _try(
        self,
        node: NodeId,
        markers: Markers,
        coordinator_epoch: LeaderEpoch,
        partitions: Iterable[TopicPartition],
    ) -> list[TopicPartition]:
        try:
            results = await self._write(node, markers, coordinator_epoch, partitions)
        except (KafkaError, PeerError, ProtocolError) as error:
            logger.info("retrying transaction markers: broker=%d error=%s", node, error)
            return []
        return [name for name, code in results.items() if code in _OVER]

    async def _write(
        self,
        node: NodeId,
        markers: Markers,
        coordinator_epoch: LeaderEpoch,
        partitions: Iterable[TopicPartition],
    ) -> dict[TopicPartition, ErrorCode]:
        if node == self._cluster.node_id:
            return await self._writer.write(
                markers.producer,
                Marker(markers.is_commit, coordinator_epoch),
                partitions,
                is_epoch_new=markers.flow >= NEW_FLOW,
            )
        request = WriteTxnMarkersRequest(
            markers=[
                WritableTxnMarker(
                    producer_id=markers.producer.producer_id,
                    producer_epoch=markers.producer.epoch,
                    transaction_result=markers.is_commit,
                    topics=[
                        WritableTxnMarkerTopic(name=topic, partition_indexes=indexes)
                        for topic, indexes in by_topic(partitions).items()
                    ],
                    coordinator_epoch=coordinator_epoch,
                    transaction_version=markers.flow,
                )
            ]
        )
        response = await _call_broker(
            self._cluster, node, request, _MARKERS_VERSION, WriteTxnMarkersResponse
        )
        return {
            TopicPartition(topic.name, PartitionIndex(row.partition_index)): ErrorCode(
                row.error_code
            )
            for marker in response.markers
            for topic in marker.topics
            for row in topic.partitions
        }


class TransactionCalls:
    """This broker's transaction coordinator, and the requests to those of other brokers."""

    __slots__ = ("_cluster", "_committers", "_writers", "coordinator", "waiting", "writer")

    def __init__(
        self, cluster: Cluster, coordinator: TransactionCoordinator, writer: MarkerWriter
    ) -> None:
        self._cluster = cluster
        self.coordinator = coordinator
        self.writer = writer
        self.waiting: Waiting = {}
        self._committers = NewestConnections(CALLERS_MAX)
        self._writers = NewestConnections(CALLERS_MAX)

    # -- delayed requests (before KIP-890) --------------------------------------------------------

    def check_committer(self, producer: ProducerIdentity, shard: GroupShard, call: Call) -> None:
        """Raises CloseConnection if a commit of offsets may be a delayed one."""
        connected_at = call.connected_at
        if connected_at is None:
            return
        key = (producer, shard.partition_name, shard.began_at)
        since = shard.began_at if shard.knows(producer) else ANY_CONNECTION
        if not self._committers.admits(key, connected_at, since):
            raise CloseConnection(OLDER_CONNECTION)

    def check_writer(self, call: Call, producer: ProducerIdentity) -> None:
        """The same for a batch, to any partition."""
        connected_at = call.connected_at
        if connected_at is not None and not self._writers.admits(producer, connected_at):
            raise CloseConnection(OLDER_CONNECTION)

    # -- partitions of a transaction --------------------------------------------------------------

    async def put_partitions(
        self,
        transactional_id: str,
        producer: ProducerIdentity,
        partitions: Collection[TopicPartition],
        *,
        verify_only: bool,
    ) -> dict[TopicPartition, ErrorCode]:
        """Has the coordinator add `partitions` to a transaction, or verify that they are in it."""
        request = PartitionsRequest(
            transactional_id=transactional_id, producer=producer, partitions=frozenset(partitions)
        )
        try:
            index = self.coordinator.partition_of(transactional_id)
            leader = self._cluster.leader_of(TRANSACTION_TOPIC, index)
            if leader is None:
                raise CoordinatorNotAvailable("The coordinator is not available.")
            if leader.node_id == self._cluster.node_id:
                return await self.put_here(request, verify_only=verify_only)
            return await self._put_there(leader.node_id, request, verify_only=verify_only)
        except (PeerError, ProtocolError):
            code = ErrorCode.COORDINATOR_NOT_AVAILABLE
        except KafkaError as error:
            code = error.code
        return dict.fromkeys(partitions, code)

    async def put_one(
        self,
        transactional_id: str,
        producer: ProducerIdentity,
        partition: TopicPartition,
        *,
        verify_only: bool,
    ) -> ErrorCode:
        codes = await self.put_partitions(
            transactional_id, producer, (partition,), verify_only=verify_only
        )
        return codes[partition]

    async def put_here(
        self, request: PartitionsRequest, *, verify_only: bool, call: Call | None = None
    ) -> dict[TopicPartition, ErrorCode]:
        """The same if this broker is the coordinator; raises NotCoordinator otherwise. For a `call`
        of the old flow, raises CloseConnection if it may be a delayed one."""
        shard = self.coordinator.of_key(request.transactional_id)
        if verify_only:
            verified = await shard.ask(
                lambda registry, token, now: registry.verify_partitions(request, token, now),
                VerifyAnswer,
            )
            return dict(verified.errors)

        def add(registry: TransactionRegistry, token: int, now: Moment) -> TransactionEffects:
            # Checked at each decision: the client may give up while this waits for an ending
            # transaction.
            check_caller(registry, request.transactional_id, request.producer, call)
            return registry.add_partitions(request, token, now)

        added = await shard.ask_when_ended(request.transactional_id, add, AddAnswer)
        return dict.fromkeys(request.partitions, added.error)

    async def _put_there(
        self, node: NodeId, request: PartitionsRequest, *, verify_only: bool
    ) -> dict[TopicPartition, ErrorCode]:
        message = AddPartitionsToTxnRequest(
            transactions=[
                AddPartitionsToTxnTransaction(
                    transactional_id=request.transactional_id,
                    producer_id=request.producer.producer_id,
                    producer_epoch=request.producer.epoch,
                    verify_only=verify_only,
                    topics=[
                        AddPartitionsToTxnTopic(name=topic, partitions=indexes)
                        for topic, indexes in by_topic(request.partitions).items()
                    ],
                )
            ]
        )
        response = await _call_broker(
            self._cluster, node, message, _PARTITIONS_VERSION, AddPartitionsToTxnResponse
        )
        if response.error_code:
            return dict.fromkeys(request.partitions, ErrorCode(response.error_code))
        return {
            TopicPartition(topic.name, PartitionIndex(row.partition_index)): ErrorCode(
                row.partition_error_code
            )
            for result in response.results_by_transaction
            for topic in result.topic_results
            for row in topic.results_by_partition
        }


def open_transactions(
    cluster: Cluster, clock: Clock, loop: asyncio.AbstractEventLoop, config: BrokerConfig
) -> TransactionCalls:
    """Creates this broker's transaction coordinator."""
    writer = MarkerWriter(cluster.partitions, cluster.groups, clock)
    rules = TransactionConfig(
        timeout_ms_max=config.transaction_max_timeout_ms,
        id_expiration_ms=config.transactional_id_expiration_ms,
    )
    coordinator = TransactionCoordinator(
        cluster.partitions,
        lambda: TransactionRegistry(rules, since=monotonic()),
        clock,
        loop,
        MarkerSender(cluster, writer).send,
    )
    return TransactionCalls(cluster, coordinator, writer)


def check_caller(
    registry: TransactionRegistry,
    transactional_id: str,
    producer: ProducerIdentity,
    call: Call | None,
) -> None:
    """Raises CloseConnection if a request of the old flow may be a delayed one."""
    connected_at = None if call is None else call.connected_at
    if connected_at is not None and not registry.admits(transactional_id, producer, connected_at):
        raise CloseConnection(OLDER_CONNECTION)


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    grouped: dict[str, list[int]] = {}
    for topic, index in partitions:
        grouped.setdefault(topic, []).append(int(index))
    return grouped
