"""What the brokers of a cluster say of it, asked over the wire as any client may. Nothing is judged here."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple
from uuid import UUID

from kafkaesque.client.wire.address import parse_address
from kafkaesque.client.wire.blocking import BrokerClient
from kafkaesque.model.errors import ErrorCode
from kafkaesque.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from kafkaesque.wire.messages.create_topics import (
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from kafkaesque.wire.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    PartitionData,
    TopicData,
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
from kafkaesque.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from kafkaesque.wire.messages.metadata import MetadataRequest, MetadataResponse

Place = tuple[str, int]
"""Topic and partition."""

_LATEST: Final = -1
_GROUP_KEY: Final = 0
_CREATE_TIMEOUT_MS: Final = 20_000
_CONTROLLER_LOG: Final = "__cluster_metadata"
"""By which Kafka's clients know the controller's group."""


class PartitionSeen(NamedTuple):
    """One partition as one broker knows it."""

    leader: int | None
    epoch: int
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]


class ClusterSeen(NamedTuple):
    """All of it as one broker knows it."""

    controller: int | None
    brokers: frozenset[int]
    partitions: dict[Place, PartitionSeen]
    topic_ids: dict[str, UUID]


class Watermark(NamedTuple):
    """What a broker that leads a partition says of its committed end."""

    epoch: int
    offset: int


class Asker(BrokerClient):
    """Questions about the cluster, to one broker."""

    def __init__(self, address: str, timeout_s: float) -> None:
        super().__init__(parse_address(address), timeout_s=timeout_s, client_id="kafkaesque-fault")

    def look(self) -> ClusterSeen:
        request = MetadataRequest(topics=None, allow_auto_topic_creation=False)
        answer = self.call(request, MetadataResponse, 12)
        return ClusterSeen(
            controller=None if answer.controller_id < 0 else answer.controller_id,
            brokers=frozenset(broker.node_id for broker in answer.brokers),
            partitions={
                (topic.name or "", row.partition_index): PartitionSeen(
                    None if row.leader_id < 0 else row.leader_id,
                    row.leader_epoch,
                    tuple(row.replica_nodes),
                    tuple(row.isr_nodes),
                )
                for topic in answer.topics
                for row in topic.partitions
            },
            topic_ids={topic.name or "": topic.topic_id for topic in answer.topics},
        )

    def watermarks(
        self, places: Iterable[Place], *, read_committed: bool = False
    ) -> dict[Place, Watermark]:
        """Of those that this broker leads and may serve; `read_committed` for the last stable offset."""
        topics: dict[str, list[ListOffsetsPartition]] = {}
        for topic, index in places:
            asked = ListOffsetsPartition(partition_index=index, timestamp=_LATEST)
            topics.setdefault(topic, []).append(asked)
        request = ListOffsetsRequest(
            replica_id=-1,
            isolation_level=int(read_committed),
            topics=[ListOffsetsTopic(name=name, partitions=rows) for name, rows in topics.items()],
        )
        answer = self.call(request, ListOffsetsResponse, 7)
        return {
            (topic.name, row.partition_index): Watermark(row.leader_epoch, row.offset)
            for topic in answer.topics
            for row in topic.partitions
            if row.error_code == ErrorCode.NONE
        }

    def controller_voters(self) -> frozenset[int]:
        """Who votes for the controller; none if this broker is not the controller."""
        asked = TopicData(topic_name=_CONTROLLER_LOG, partitions=[PartitionData(partition_index=0)])
        answer = self.call(DescribeQuorumRequest(topics=[asked]), DescribeQuorumResponse, 1)
        return frozenset(
            voter.replica_id
            for topic in answer.topics
            for partition in topic.partitions
            for voter in partition.current_voters
        )

    def coordinator(self, group_id: str) -> int | None:
        request = FindCoordinatorRequest(key_type=_GROUP_KEY, coordinator_keys=[group_id])
        (found,) = self.call(request, FindCoordinatorResponse, 4).coordinators
        return found.node_id if found.error_code == ErrorCode.NONE else None

    def create_topic(self, name: str, replication_factor: int) -> str | None:
        """Why it is refused; None if it is there."""
        topic = CreatableTopic(
            name=name,
            num_partitions=1,
            replication_factor=replication_factor,
            assignments=[],
            configs=[],
        )
        request = CreateTopicsRequest(topics=[topic], timeout_ms=_CREATE_TIMEOUT_MS)
        (made,) = self.call(request, CreateTopicsResponse, 7).topics
        return None if made.error_code == ErrorCode.NONE else ErrorCode(made.error_code).name

    def reassign(self, place: Place, replicas: list[int]) -> str | None:
        """Why it is refused; None if it has begun."""
        topic, index = place
        wanted = ReassignablePartition(partition_index=index, replicas=replicas)
        request = AlterPartitionReassignmentsRequest(
            topics=[ReassignableTopic(name=topic, partitions=[wanted])]
        )
        answer = self.call(request, AlterPartitionReassignmentsResponse, 0)
        codes = [row.error_code for one in answer.responses for row in one.partitions]
        code = next((ErrorCode(code) for code in (answer.error_code, *codes) if code), None)
        return None if code is None else code.name

    def reassigning(self) -> int:
        """How many partitions are on their way to other brokers."""
        answer = self.call(
            ListPartitionReassignmentsRequest(), ListPartitionReassignmentsResponse, 0
        )
        return sum(len(topic.partitions) for topic in answer.topics)
