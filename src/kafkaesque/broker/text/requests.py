"""Kafka requests from inside the broker, to the broker that can answer.

No socket and no client library: requests to this broker go straight to its handlers, others as calls
over the links. They are encoded with `wire`, so they are checked and counted like any client's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, NamedTuple, TypeVar

from kafkaesque.broker.cluster.cluster import Cluster
from kafkaesque.broker.replication.peer_calls import PeerError
from kafkaesque.broker.server.call import CloseConnection
from kafkaesque.broker.text.rules.messages import TextMessage
from kafkaesque.model.errors import ErrorCode, KafkaError, ProtocolError
from kafkaesque.model.ids import NodeId, Offset, TimestampMs
from kafkaesque.records.batch import read_header
from kafkaesque.records.codec import Record, decode_batch, encode_batch
from kafkaesque.wire.codec import decode_response, encode_request_frame
from kafkaesque.wire.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
)
from kafkaesque.wire.messages.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from kafkaesque.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from kafkaesque.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from kafkaesque.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from kafkaesque.wire.table import Request, Response

CLIENT_ID: Final = "kafkaesque-text"
SERVE: Final = 24
"""Kind of call: serve a Kafka request as if a client had sent it."""
CALL_SECONDS: Final = 30.0
"""Longer than a JoinGroup waits for other members."""
RETRY_FOR_SECONDS: Final = 10.0
RETRY_SECONDS: Final = 0.1
PRODUCE_TIMEOUT_MS: Final = 10_000
EARLIEST: Final = -2

_LENGTH_BYTES = 4
_VERSIONS: dict[type[Request], int] = {
    ProduceRequest: 9,
    FetchRequest: 12,
    ListOffsetsRequest: 7,
    MetadataRequest: 9,
    FindCoordinatorRequest: 3,
}
_RETRIABLE = frozenset(
    (
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.NOT_ENOUGH_REPLICAS,
    )
)
"""Transient errors; UNKNOWN_TOPIC_OR_PARTITION while a topic is new."""

A = TypeVar("A", bound=Response)
T = TypeVar("T")


class ClusterRequestFailed(Exception):
    """The cluster answered with an error."""

    def __init__(self, code: int, text: str = "") -> None:
        super().__init__(text or ErrorCode(code).name)
        self.code = ErrorCode(code)

    @property
    def is_retriable(self) -> bool:
        return self.code in _RETRIABLE


class Read(NamedTuple):
    """Records of one partition, and its high watermark."""

    records: list[Record]
    high_watermark: int


class Requests:
    """`serve` answers a request frame (without its length) on this broker."""

    __slots__ = ("_cluster", "_serve")

    def __init__(self, cluster: Cluster, serve: Callable[[bytes], Awaitable[bytes]]) -> None:
        self._cluster = cluster
        self._serve = serve

    @property
    def cluster(self) -> Cluster:
        return self._cluster

    async def send(self, node: NodeId, request: Request, answer: type[A], version: int = -1) -> A:
        """Raises ClusterRequestFailed(REQUEST_TIMED_OUT) if the broker does not answer."""
        version = _VERSIONS[type(request)] if version < 0 else version
        frame = b"".join(encode_request_frame(request, version, 1, CLIENT_ID))[_LENGTH_BYTES:]
        try:
            if node == self._cluster.node_id:
                reply = await self._serve(frame)
            else:
                reply = await self._cluster.links.call(node, SERVE, frame, CALL_SECONDS)
        except (PeerError, CloseConnection) as error:
            raise ClusterRequestFailed(
                ErrorCode.REQUEST_TIMED_OUT, f"broker {node}: {error}"
            ) from error
        except KafkaError as error:
            raise ClusterRequestFailed(error.code, str(error)) from error
        try:
            return decode_response(answer, memoryview(reply)[_LENGTH_BYTES:], version)
        except ProtocolError as error:
            raise ClusterRequestFailed(
                ErrorCode.UNKNOWN_SERVER_ERROR, f"broker {node}: {error}"
            ) from error

    async def retry(self, work: Callable[[], Awaitable[T]]) -> T:
        """Retries on transient errors, for RETRY_FOR_SECONDS."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + RETRY_FOR_SECONDS
        while True:
            try:
                return await work()
            except ClusterRequestFailed as error:
                if not error.is_retriable or loop.time() > deadline:
                    raise
            await asyncio.sleep(RETRY_SECONDS)

    async def ensure_topic(self, topic: str) -> int:
        """The number of partitions of `topic`, which is created if the broker auto-creates topics."""
        found = self._cluster.tables.by_name.get(topic)
        if found is not None:
            return found.partition_count
        request = MetadataRequest(
            topics=[MetadataRequestTopic(name=topic)],
            allow_auto_topic_creation=self._cluster.settings.current.auto_create_topics_enable,
        )

        async def query() -> int:
            answer = await self.send(self._cluster.node_id, request, MetadataResponse)
            (result,) = answer.topics
            _check(result.error_code)
            return len(result.partitions)

        return await self.retry(query)

    def leader(self, topic: str, partition: int) -> NodeId:
        found = self._cluster.leader_of(topic, partition)
        if found is None:
            raise ClusterRequestFailed(ErrorCode.LEADER_NOT_AVAILABLE)
        return found.node_id

    async def produce(self, topic: str, partition: int, message: TextMessage, now_ms: int) -> int:
        """Returns the offset of the message once all in-sync replicas have it. Like any producer
        without idempotence it may write twice if leadership moves meanwhile; it never loses."""
        key, body, headers = message
        record = Record(Offset(0), TimestampMs(now_ms), key, body, headers)
        data = PartitionProduceData(index=partition, records=memoryview(encode_batch([record])))
        request = ProduceRequest(
            acks=-1,
            timeout_ms=PRODUCE_TIMEOUT_MS,
            topic_data=[TopicProduceData(name=topic, partition_data=[data])],
        )

        async def write() -> int:
            answer = await self.send(self.leader(topic, partition), request, ProduceResponse)
            result = answer.responses[0].partition_responses[0]
            _check(result.error_code, result.error_message)
            return result.base_offset

        return await self.retry(write)

    async def fetch(
        self, topic: str, partition: int, offset: int, size_bytes_max: int, wait_ms: int
    ) -> Read:
        wanted = FetchPartition(
            partition=partition, fetch_offset=offset, partition_max_bytes=size_bytes_max
        )
        request = FetchRequest(
            max_wait_ms=wait_ms,
            min_bytes=1,
            max_bytes=size_bytes_max,
            isolation_level=1,
            topics=[FetchTopic(topic=topic, partitions=[wanted])],
        )

        async def read() -> Read:
            answer = await self.send(self.leader(topic, partition), request, FetchResponse)
            _check(answer.error_code)
            result = answer.responses[0].partitions[0]
            _check(result.error_code)
            records = [r for r in _records(result.records) if r.offset >= offset]
            return Read(records, result.high_watermark)

        return await self.retry(read)

    async def earliest(self, topic: str, partition: int) -> int:
        wanted = ListOffsetsPartition(partition_index=partition, timestamp=EARLIEST)
        request = ListOffsetsRequest(
            replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=[wanted])]
        )

        async def query() -> int:
            answer = await self.send(self.leader(topic, partition), request, ListOffsetsResponse)
            result = answer.topics[0].partitions[0]
            _check(result.error_code)
            return result.offset

        return await self.retry(query)

    async def coordinator(self, group: str) -> NodeId:
        request = FindCoordinatorRequest(key=group)
        answer = await self.send(self._cluster.node_id, request, FindCoordinatorResponse)
        _check(answer.error_code, answer.error_message)
        return NodeId(answer.node_id)


def _records(data: memoryview | bytes | None) -> Sequence[Record]:
    """The records of complete batches, without control batches; the last batch may be truncated."""
    records: list[Record] = []
    view, position = memoryview(data or b""), 0
    while position < len(view):
        header = read_header(view, position)
        if position + header.size_bytes > len(view):
            break
        if not header.is_control:
            records += decode_batch(view, position)
        position += header.size_bytes
    return records


def _check(code: int, text: str | None = None) -> None:
    if code:
        raise ClusterRequestFailed(code, text or "")
