"""Kafka requests from inside the broker: to whichever broker can answer, over the links.

No socket and no client library: this broker's own requests go straight to its handlers, others as
calls between brokers. What is asked is in `wire`, so it is checked and counted like any client's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, NamedTuple, TypeVar

from kafkaesque.broker.cluster.cluster import Cluster
from kafkaesque.broker.replication.peer_calls import PeerError
from kafkaesque.broker.server.call import CloseConnection
from kafkaesque.broker.text.rules.messages import Message
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
"""Kind of call: answer a Kafka request as if a client had sent it to you."""
CALL_SECONDS: Final = 30.0
"""Above what a JoinGroup waits for others."""
PATIENCE_SECONDS: Final = 10.0
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
_PASSING = frozenset(
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
"""Errors that a while may heal; UNKNOWN_TOPIC_OR_PARTITION while a topic is new."""

A = TypeVar("A", bound=Response)
T = TypeVar("T")


class Asked(Exception):
    """The cluster answered with an error."""

    def __init__(self, code: int, text: str = "") -> None:
        super().__init__(text or ErrorCode(code).name)
        self.code = ErrorCode(code)

    @property
    def is_passing(self) -> bool:
        return self.code in _PASSING


class Read(NamedTuple):
    """Records of one partition, and how far it goes."""

    records: list[Record]
    high_watermark: int


class Requests:
    """`serve` answers a request frame, without its length, on this broker."""

    __slots__ = ("_cluster", "_serve")

    def __init__(self, cluster: Cluster, serve: Callable[[bytes], Awaitable[bytes]]) -> None:
        self._cluster = cluster
        self._serve = serve

    @property
    def cluster(self) -> Cluster:
        return self._cluster

    async def ask(self, node: NodeId, request: Request, answer: type[A], version: int = -1) -> A:
        """Asked(REQUEST_TIMED_OUT) if the broker does not answer."""
        version = _VERSIONS[type(request)] if version < 0 else version
        frame = b"".join(encode_request_frame(request, version, 1, CLIENT_ID))[_LENGTH_BYTES:]
        try:
            if node == self._cluster.node_id:
                reply = await self._serve(frame)
            else:
                reply = await self._cluster.links.call(node, SERVE, frame, CALL_SECONDS)
        except (PeerError, CloseConnection) as error:
            raise Asked(ErrorCode.REQUEST_TIMED_OUT, f"broker {node}: {error}") from error
        except KafkaError as error:
            raise Asked(error.code, str(error)) from error
        try:
            return decode_response(answer, memoryview(reply)[_LENGTH_BYTES:], version)
        except ProtocolError as error:
            raise Asked(ErrorCode.UNKNOWN_SERVER_ERROR, f"broker {node}: {error}") from error

    async def persist(self, work: Callable[[], Awaitable[T]]) -> T:
        """Try again while what is wrong may pass, for a while."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + PATIENCE_SECONDS
        while True:
            try:
                return await work()
            except Asked as error:
                if not error.is_passing or loop.time() > deadline:
                    raise
            await asyncio.sleep(RETRY_SECONDS)

    async def have_topic(self, topic: str) -> int:
        """How many partitions it has; made if there is none and the broker makes topics."""
        found = self._cluster.tables.by_name.get(topic)
        if found is not None:
            return found.partition_count
        request = MetadataRequest(
            topics=[MetadataRequestTopic(name=topic)],
            allow_auto_topic_creation=self._cluster.config.auto_create_topics_enable,
        )

        async def look() -> int:
            answer = await self.ask(self._cluster.node_id, request, MetadataResponse)
            (told,) = answer.topics
            _check(told.error_code)
            return len(told.partitions)

        return await self.persist(look)

    def leader(self, topic: str, partition: int) -> NodeId:
        found = self._cluster.leader_of(topic, partition)
        if found is None:
            raise Asked(ErrorCode.LEADER_NOT_AVAILABLE)
        return found.node_id

    async def produce(self, topic: str, partition: int, message: Message, now_ms: int) -> int:
        """The offset at which the message is, on all in-sync replicas. Like any producer without
        idempotence it may write twice if leadership moves in the middle, and never loses."""
        key, body, headers = message
        record = Record(Offset(0), TimestampMs(now_ms), key, body, headers)
        data = PartitionProduceData(index=partition, records=memoryview(encode_batch([record])))
        request = ProduceRequest(
            acks=-1,
            timeout_ms=PRODUCE_TIMEOUT_MS,
            topic_data=[TopicProduceData(name=topic, partition_data=[data])],
        )

        async def write() -> int:
            answer = await self.ask(self.leader(topic, partition), request, ProduceResponse)
            told = answer.responses[0].partition_responses[0]
            _check(told.error_code, told.error_message)
            return told.base_offset

        return await self.persist(write)

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
            answer = await self.ask(self.leader(topic, partition), request, FetchResponse)
            _check(answer.error_code)
            told = answer.responses[0].partitions[0]
            _check(told.error_code)
            records = [r for r in _records(told.records) if r.offset >= offset]
            return Read(records, told.high_watermark)

        return await self.persist(read)

    async def earliest(self, topic: str, partition: int) -> int:
        wanted = ListOffsetsPartition(partition_index=partition, timestamp=EARLIEST)
        request = ListOffsetsRequest(
            replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=[wanted])]
        )

        async def look() -> int:
            answer = await self.ask(self.leader(topic, partition), request, ListOffsetsResponse)
            told = answer.topics[0].partitions[0]
            _check(told.error_code)
            return told.offset

        return await self.persist(look)

    async def coordinator(self, group: str) -> NodeId:
        request = FindCoordinatorRequest(key=group)
        answer = await self.ask(self._cluster.node_id, request, FindCoordinatorResponse)
        _check(answer.error_code, answer.error_message)
        return NodeId(answer.node_id)


def _records(data: memoryview | bytes | None) -> Sequence[Record]:
    """Of whole batches; control batches tell nothing, and the last batch may be cut short."""
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
        raise Asked(code, text or "")
