"""Administrative requests to one broker over the Kafka protocol, as any client may send them.

A client library picks the broker itself and retries; fault runs need the answer of one broker, now.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple
from uuid import UUID

from kafkaesque.client.wire.address import parse_broker_address
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


class Watermark(NamedTuple):
    """A leader's answer about the committed end of a partition."""

    epoch: int
    offset: int


class BrokerAdmin(BrokerClient):
    """Requests to one broker. Each raises OSError if the broker does not answer in time."""

    def __init__(self, address: str, timeout_s: float) -> None:
        super().__init__(
            parse_broker_address(address), timeout_s=timeout_s, client_id="kafkaesque-fault"
        )

    def topic_ids(self) -> dict[str, UUID]:
        request = MetadataRequest(topics=None, allow_auto_topic_creation=False)
        answer = self.call(request, MetadataResponse, 12)
        return {topic.name or "": topic.topic_id for topic in answer.topics}

    def watermarks(
        self, places: Iterable[Place], *, read_committed: bool = False
    ) -> dict[Place, Watermark]:
        """High watermarks, or with `read_committed` last stable offsets, of the partitions that this
        broker leads."""
        topics: dict[str, list[ListOffsetsPartition]] = {}
        for topic, index in places:
            wanted = ListOffsetsPartition(partition_index=index, timestamp=_LATEST)
            topics.setdefault(topic, []).append(wanted)
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

    def coordinator(self, group_id: str) -> int | None:
        """The coordinator of a consumer group; None while there is none."""
        request = FindCoordinatorRequest(key_type=_GROUP_KEY, coordinator_keys=[group_id])
        (found,) = self.call(request, FindCoordinatorResponse, 4).coordinators
        return found.node_id if found.error_code == ErrorCode.NONE else None

    def create_topic(self, name: str, replication_factor: int) -> str | None:
        """Creates a topic of one partition; returns the error if the broker refuses it."""
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
        """Begins to move a partition; returns the error if the broker refuses it."""
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
        """How many partitions are being reassigned."""
        answer = self.call(
            ListPartitionReassignmentsRequest(), ListPartitionReassignmentsResponse, 0
        )
        return sum(len(topic.partitions) for topic in answer.topics)
