"""Metadata and offsets of a Kafka cluster: partitions, their leaders, the ends of their logs.

Retriable errors (a leader moved, a broker is down) are retried until a deadline. The rules about
offsets are in `source/planning.py`.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from kafkaesque.client.wire.blocking import BlockingConnection
from kafkaesque.client.wire.errors import (
    ApiUnsupported,
    AuthenticationFailed,
    ConnectionLost,
    error_name,
)
from kafkaesque.client.wire.security import InvalidSecurity, Security
from kafkaesque.model.address import Address
from kafkaesque.model.errors import ErrorCode
from kafkaesque.pipeline.errors import InvalidOption, KafkaRefused, KafkaUnreachable
from kafkaesque.pipeline.rules.offsets import Partition
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
    MetadataResponseTopic,
)
from kafkaesque.wire.table import Request, Response

T = TypeVar("T")
R = TypeVar("R", bound=Response)

CLIENT_ID = "kafkaesque-pipeline"
RECEIVE_BUFFER_BYTES = 4 << 20
EARLIEST = -2
LATEST = -1
RETRY_PAUSE_S = 0.1
READ_COMMITTED = 1
TOPOLOGY_AGE_S_MAX = 5.0
"""How long cached leaders are used. A broker that is no longer the leader rejects the request."""

RETRIABLE_ERRORS = frozenset(
    {
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.BROKER_NOT_AVAILABLE,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    }
)
"""Errors that disappear by themselves or with fresh metadata."""
_ABSENT = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID})


class RetriableError(Exception):
    """The operation may succeed if it is retried with fresh metadata."""


class TopicMissing(Exception):
    """A topic or partition does not exist."""


@dataclass(frozen=True, slots=True)
class ClusterSettings:
    """Settings of the connections to a cluster."""

    bootstrap: tuple[Address, ...]
    security: Security = field(default_factory=Security)
    request_timeout_s: float = 30.0
    """Timeout of one response. It must be longer than a Fetch may wait at the broker."""
    deadline_s: float = 60.0
    """Deadline of an operation with all its retries: Kafka's `default.api.timeout.ms`."""


@dataclass(frozen=True, slots=True)
class Topology:
    """Leaders by partition, addresses by node id."""

    leaders: Mapping[Partition, int]
    addresses: Mapping[int, Address]

    def leader_of(self, partition: Partition) -> Address:
        node = self.leaders.get(partition)
        if node is None:
            raise TopicMissing(f"{partition[0]}-{partition[1]}")
        if node not in self.addresses:
            raise RetriableError(f"{partition[0]}-{partition[1]} has no leader")
        return self.addresses[node]


class ClusterClient:
    """Queries a cluster and keeps its connections between calls. Not thread-safe."""

    def __init__(self, settings: ClusterSettings) -> None:
        self.settings = settings
        self._connections: dict[Address, BlockingConnection] = {}
        self._known: set[Address] = set()
        self._recent: tuple[float, Topology] | None = None

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    def connection(self, address: Address) -> BlockingConnection:
        """An idle connection to a broker. Raises ConnectionLost if it cannot be opened."""
        kept = self._connections.pop(address, None)
        if kept is not None and not kept.is_idle:
            kept.close()
            kept = None
        if kept is None:
            kept = self._connect(address)
        self._connections[address] = kept
        return kept

    def _connect(self, address: Address) -> BlockingConnection:
        settings = self.settings
        try:
            return BlockingConnection(
                address,
                settings.security,
                timeout_s=settings.request_timeout_s,
                client_id=CLIENT_ID,
                receive_buffer_bytes=RECEIVE_BUFFER_BYTES,
            )
        except InvalidSecurity as error:
            raise InvalidOption(str(error)) from error
        except (AuthenticationFailed, ApiUnsupported) as error:
            raise KafkaRefused(str(error)) from error

    def forget(self, address: Address) -> None:
        kept = self._connections.pop(address, None)
        if kept is not None:
            kept.close()

    def retry(self, what: str, operation: Callable[[], T]) -> T:
        """Runs `operation` until it succeeds or the deadline has passed."""
        deadline = time.monotonic() + self.settings.deadline_s
        while True:
            try:
                return operation()
            except (ConnectionLost, RetriableError) as error:
                self._recent = None
                if isinstance(error, ConnectionLost):
                    self.close()
                if time.monotonic() >= deadline:
                    raise KafkaUnreachable(f"cannot {what}: {error}") from error
                time.sleep(RETRY_PAUSE_S)
            except ApiUnsupported as error:
                raise KafkaRefused(f"cannot {what}: {error}") from error

    def topology(self, topics: Iterable[str] | None) -> Topology:
        """The leaders of `topics`, or of all topics if None. Never creates a topic."""
        answer = self._metadata(topics)
        addresses = {broker.node_id: Address(broker.host, broker.port) for broker in answer.brokers}
        self._known = set(addresses.values())
        leaders: dict[Partition, int] = {}
        for topic in answer.topics:
            if topic.error_code in _ABSENT:
                continue
            _raise_error(topic.error_code, f"topic '{topic.name}'")
            leaders.update(_leaders(topic))
        found = Topology(leaders, addresses)
        self._recent = (time.monotonic(), found)
        return found

    def recent_topology(self, topics: Iterable[str]) -> Topology:
        """As `topology`, but cached for a few seconds: a micro-batch would request it at each step."""
        wanted = set(topics)
        if self._recent is not None:
            fetched_s, found = self._recent
            is_recent = time.monotonic() - fetched_s < TOPOLOGY_AGE_S_MAX
            if is_recent and wanted <= {topic for topic, _ in found.leaders}:
                return found
        return self.topology(wanted)

    def matching_topics(self, pattern: str) -> list[str]:
        """The topics whose whole name matches, as with Spark's subscribePattern; no internal topics."""
        try:
            compiled = re.compile(pattern)
        except re.error as error:
            raise InvalidOption(
                f"subscribePattern '{pattern}' is not a valid pattern: {error}"
            ) from error
        answer = self._metadata(None)
        return sorted(
            topic.name
            for topic in answer.topics
            if topic.name is not None
            and not topic.is_internal
            and topic.error_code == ErrorCode.NONE
            and compiled.fullmatch(topic.name)
        )

    def _metadata(self, topics: Iterable[str] | None) -> MetadataResponse:
        wanted = None if topics is None else [MetadataRequestTopic(name=name) for name in topics]
        request = MetadataRequest(topics=wanted, allow_auto_topic_creation=False)
        return self.bootstrap_call(request, MetadataResponse)

    def bootstrap_call(self, request: Request, response: type[R]) -> R:
        """Calls any broker. Known brokers come first: a bootstrap address may no longer exist."""
        lost: list[str] = []
        for address in [*self._known, *self.settings.bootstrap]:
            try:
                return self.connection(address).call(request, response)
            except ConnectionLost as error:
                self.forget(address)
                lost.append(str(error))
        raise ConnectionLost("; ".join(dict.fromkeys(lost)))

    def list_offsets(
        self, partitions: Mapping[Partition, int], *, committed_only: bool = False
    ) -> dict[Partition, int]:
        """The offset of each partition for a timestamp (ms, EARLIEST or LATEST).

        -1 if all records are older than the timestamp. Raises TopicMissing if a partition is gone.
        """
        if not partitions:
            return {}
        topology = self.recent_topology(topic for topic, _ in partitions)
        by_leader: dict[Address, list[Partition]] = {}
        for partition in partitions:
            by_leader.setdefault(topology.leader_of(partition), []).append(partition)
        found: dict[Partition, int] = {}
        for address, wanted in by_leader.items():
            request = _list_offsets_request(wanted, partitions, committed_only)
            answer = self.connection(address).call(request, ListOffsetsResponse)
            for topic in answer.topics:
                for row in topic.partitions:
                    _raise_error(row.error_code, f"{topic.name}-{row.partition_index}")
                    found[topic.name, row.partition_index] = row.offset
        return found


def _list_offsets_request(
    wanted: Sequence[Partition], timestamps: Mapping[Partition, int], committed_only: bool
) -> ListOffsetsRequest:
    by_topic: dict[str, list[ListOffsetsPartition]] = {}
    for topic, index in wanted:
        by_topic.setdefault(topic, []).append(
            ListOffsetsPartition(partition_index=index, timestamp=timestamps[topic, index])
        )
    return ListOffsetsRequest(
        replica_id=-1,
        isolation_level=READ_COMMITTED if committed_only else 0,
        topics=[ListOffsetsTopic(name=name, partitions=rows) for name, rows in by_topic.items()],
    )


def _leaders(topic: MetadataResponseTopic) -> dict[Partition, int]:
    return {
        (topic.name or "", partition.partition_index): partition.leader_id
        for partition in topic.partitions
    }


def _raise_error(code: int, what: str) -> None:
    """Raises RetriableError, TopicMissing or KafkaRefused for an error code; nothing for NONE."""
    if code == ErrorCode.NONE:
        return
    if code in RETRIABLE_ERRORS:
        raise RetriableError(f"{what}: {error_name(code)}")
    if code in _ABSENT:
        raise TopicMissing(what)
    raise KafkaRefused(f"{what}: {error_name(code)}")
