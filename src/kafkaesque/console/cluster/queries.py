"""Read-only requests to the brokers. Each function returns plain values.

A broker that does not answer is left out of the result instead of failing the whole query. Functions
that need only one broker raise ConnectionLost if none answers.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from kafkaesque.admin.messages import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedConsumerGroup,
)
from kafkaesque.admin.requests import (
    GROUPS_AT_ONCE,
    TOPIC_RESOURCE,
    TOPICS_AT_ONCE,
    chunks,
    gather_available,
)
from kafkaesque.client.wire.asyncio_connection import AsyncConnection
from kafkaesque.client.wire.errors import ApiUnsupported, ConnectionLost
from kafkaesque.client.wire.pool import ConnectionPool
from kafkaesque.console.rules.phantom_lag import (
    UnreadRange,
    next_readable_offset,
)
from kafkaesque.console.rules.view import Document, PartitionKey, QuorumMember, QuorumView
from kafkaesque.console.rules.view_builder import LogDirs
from kafkaesque.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from kafkaesque.wire.messages.describe_groups import (
    DescribedGroup,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from kafkaesque.wire.messages.describe_log_dirs import (
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
)
from kafkaesque.wire.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    PartitionData,
    ReplicaState,
    TopicData,
)
from kafkaesque.wire.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
)
from kafkaesque.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
)

TOPIC_CONFIG_SOURCE: Final = 1
"""DYNAMIC_TOPIC_CONFIG: set on the topic itself, not inherited."""
CONTROLLER_LOG: Final = "__cluster_metadata"
CONSUMER_PROTOCOL_GROUP: Final = "consumer"
"""The group type of KIP-848's groups in ListGroups."""
ASSIGNED_PARTITIONS_MAX: Final = 100_000
READ_COMMITTED: Final = 1
FETCH_VERSION_MAX: Final = 12
"""The last version that names topics; later versions use topic ids."""
FETCH_BYTES_MAX: Final = 64 * 1024
"""Room for every transaction marker (78 bytes each) of the longest range that is checked."""


async def committed_offsets(
    links: ConnectionPool, by_coordinator: Mapping[int, Sequence[str]]
) -> dict[str, dict[PartitionKey, int]]:
    """Committed offsets by group, for up to `GROUPS_AT_ONCE` groups per request (KIP-709)."""

    async def ask(coordinator: int, names: Sequence[str]) -> dict[str, dict[PartitionKey, int]]:
        link = await links.node(coordinator)
        if link.protocol.choose_version(OffsetFetchRequest, 9) >= 8:
            return await _committed_of_many(link, names)
        return dict(await gather_available(_committed_of_one(link, name) for name in names))

    parts = await gather_available(
        ask(coordinator, chunk)
        for coordinator, names in by_coordinator.items()
        for chunk in chunks(names, GROUPS_AT_ONCE)
    )
    return {name: found for part in parts for name, found in part.items()}


async def _committed_of_many(
    link: AsyncConnection, names: Sequence[str]
) -> dict[str, dict[PartitionKey, int]]:
    request = OffsetFetchRequest(
        groups=[OffsetFetchRequestGroup(group_id=name, topics=None) for name in names]
    )
    answer = await link.call(request, OffsetFetchResponse, version_max=9)
    return {
        group.group_id: {
            (topic.name, item.partition_index): item.committed_offset
            for topic in group.topics
            for item in topic.partitions
            if not item.error_code and item.committed_offset >= 0
        }
        for group in answer.groups
        if not group.error_code
    }


async def _committed_of_one(
    link: AsyncConnection, name: str
) -> tuple[str, dict[PartitionKey, int]]:
    request = OffsetFetchRequest(group_id=name, topics=None)
    answer = await link.call(request, OffsetFetchResponse, version_max=7)
    return name, {
        (topic.name, item.partition_index): item.committed_offset
        for topic in answer.topics
        for item in topic.partitions
        if not item.error_code and item.committed_offset >= 0
    }


async def describe_log_dirs(links: ConnectionPool, brokers: Iterable[int]) -> dict[int, LogDirs]:
    async def ask(broker: int) -> tuple[int, LogDirs]:
        link = await links.node(broker)
        answer = await link.call(DescribeLogDirsRequest(topics=None), DescribeLogDirsResponse)
        replicas = [
            ((topic.name, item.partition_index), item)
            for result in answer.results
            for topic in result.topics
            for item in topic.partitions
            if not item.is_future_key
        ]
        totals = [item.total_bytes for item in answer.results if item.total_bytes >= 0]
        frees = [item.usable_bytes for item in answer.results if item.usable_bytes >= 0]
        return broker, LogDirs(
            sizes={key: item.partition_size for key, item in replicas},
            lags={key: item.offset_lag for key, item in replicas},
            total_bytes=sum(totals) if totals else None,
            free_bytes=sum(frees) if frees else None,
        )

    return dict(await gather_available(map(ask, brokers)))


async def topic_settings(
    links: ConnectionPool, topics: Sequence[str], names: Sequence[str]
) -> dict[str, dict[str, str | None]]:
    """The settings in `names` of each topic."""

    async def ask(chunk: Sequence[str]) -> DescribeConfigsResponse:
        link = await links.any()
        request = DescribeConfigsRequest(
            resources=[
                DescribeConfigsResource(
                    resource_type=TOPIC_RESOURCE,
                    resource_name=topic,
                    configuration_keys=list(names),
                )
                for topic in chunk
            ]
        )
        return await link.call(request, DescribeConfigsResponse)

    answers = await gather_available(map(ask, chunks(topics, TOPICS_AT_ONCE)))
    return {
        result.resource_name: {item.name: item.value for item in result.configs}
        for answer in answers
        for result in answer.results
        if not result.error_code
    }


async def describe_topic_settings(links: ConnectionPool, topic: str) -> list[Document]:
    """Every setting of one topic, with its documentation if the broker sends it."""
    link = await links.any()
    resource = DescribeConfigsResource(
        resource_type=TOPIC_RESOURCE, resource_name=topic, configuration_keys=None
    )
    request = DescribeConfigsRequest(resources=[resource], include_documentation=True)
    answer = await link.call(request, DescribeConfigsResponse)
    return [
        {
            "name": item.name,
            "value": None if item.is_sensitive else item.value,
            "is_set": item.config_source == TOPIC_CONFIG_SOURCE,
            "is_read_only": item.read_only,
            "doc": item.documentation or "",
        }
        for result in answer.results
        for item in sorted(result.configs, key=lambda item: item.name)
    ]


async def describe_quorum(links: ConnectionPool, controller: int) -> QuorumView | None:
    """The controller's Raft group; None if this Kafka does not describe it."""
    asked = TopicData(topic_name=CONTROLLER_LOG, partitions=[PartitionData(partition_index=0)])
    try:
        link = await (links.node(controller) if controller >= 0 else links.any())
        answer = await link.call(DescribeQuorumRequest(topics=[asked]), DescribeQuorumResponse)
    except (ConnectionLost, ApiUnsupported):
        return None
    partitions = [item for topic in answer.topics for item in topic.partitions]
    if answer.error_code or not partitions or partitions[0].error_code:
        return None
    found = partitions[0]
    end = max((voter.log_end_offset for voter in found.current_voters), default=0)

    def member(replica: ReplicaState, role: str) -> QuorumMember:
        offset = replica.log_end_offset
        return QuorumMember(
            id=replica.replica_id,
            role="leader" if replica.replica_id == found.leader_id else role,
            end_offset=offset,
            lag=end - offset if offset >= 0 else None,
            last_caught_up_ms=replica.last_caught_up_timestamp,
        )

    voters = [member(replica, "voter") for replica in found.current_voters]
    observers = [member(replica, "observer") for replica in found.observers]
    return QuorumView(
        leader=found.leader_id,
        epoch=found.leader_epoch,
        high_watermark=found.high_watermark,
        members=sorted(voters, key=lambda item: item.id)
        + sorted(observers, key=lambda item: item.id),
    )


async def _describe_classic_groups(
    links: ConnectionPool, coordinator: int, names: Sequence[str]
) -> list[DescribedGroup]:
    link = await links.node(coordinator)
    request = DescribeGroupsRequest(groups=list(names))
    return (await link.call(request, DescribeGroupsResponse)).groups


async def _describe_consumer_groups(
    links: ConnectionPool, coordinator: int, names: Sequence[str]
) -> list[DescribedConsumerGroup]:
    link = await links.node(coordinator)
    request = ConsumerGroupDescribeRequest(group_ids=list(names))
    return (await link.call(request, ConsumerGroupDescribeResponse)).groups


async def count_members(
    links: ConnectionPool, by_coordinator: Mapping[tuple[int, str], Sequence[str]]
) -> dict[str, int]:
    """Members of each group; groups are given by coordinator and group type (classic or KIP-848's)."""
    classic = await gather_available(
        _describe_classic_groups(links, coordinator, chunk)
        for (coordinator, kind), names in by_coordinator.items()
        if kind != CONSUMER_PROTOCOL_GROUP
        for chunk in chunks(names, GROUPS_AT_ONCE)
    )
    new = await gather_available(
        _describe_consumer_groups(links, coordinator, chunk)
        for (coordinator, kind), names in by_coordinator.items()
        if kind == CONSUMER_PROTOCOL_GROUP
        for chunk in chunks(names, GROUPS_AT_ONCE)
    )
    counts = {
        group.group_id: len(group.members)
        for part in classic
        for group in part
        if not group.error_code
    }
    return counts | {
        group.group_id: len(group.members) for part in new for group in part if not group.error_code
    }


async def describe_members(
    links: ConnectionPool, coordinator: int, name: str, kind: str
) -> Document:
    """Members of one group and their assigned partitions. Raises ConnectionLost or ApiUnsupported."""
    if kind == CONSUMER_PROTOCOL_GROUP:
        (group,) = await _describe_consumer_groups(links, coordinator, [name])
        rows = [
            _member_row(member.member_id, member.instance_id, member.client_id, member.client_host,
                 [(topic.topic_name, index) for topic in member.assignment.topic_partitions
                  for index in topic.partitions])
            for member in group.members
        ]  # fmt: skip
        return {"assignor": group.assignor_name or None, "members": rows}
    (described,) = await _describe_classic_groups(links, coordinator, [name])
    rows = [
        _member_row(member.member_id, member.group_instance_id, member.client_id, member.client_host,
             read_assignment(bytes(member.member_assignment)))
        for member in described.members
    ]  # fmt: skip
    return {"assignor": described.protocol_data or None, "members": rows}


def _member_row(
    member: str, instance: str | None, client: str, host: str, partitions: list[PartitionKey]
) -> Document:
    return {
        "member": member,
        "instance": instance,
        "client_id": client,
        "host": host.lstrip("/"),
        "partitions": [[topic, index] for topic, index in sorted(partitions)],
    }


def read_assignment(data: bytes) -> list[PartitionKey]:
    """The partitions in a ConsumerProtocolAssignment of any version; none if `data` is malformed."""
    partitions: list[PartitionKey] = []
    try:
        (topics,) = struct.unpack_from(">i", data, 2)
        at = 6
        for _ in range(topics):
            (length,) = struct.unpack_from(">h", data, at)
            name = data[at + 2 : at + 2 + length].decode()
            at += 2 + length
            (count,) = struct.unpack_from(">i", data, at)
            if not 0 <= count <= ASSIGNED_PARTITIONS_MAX:
                return partitions
            indexes = struct.unpack_from(f">{count}i", data, at + 4)
            partitions += [(name, index) for index in indexes]
            at += 4 + 4 * count
    except (struct.error, UnicodeDecodeError):
        return partitions
    return partitions


async def next_readable_offsets(
    links: ConnectionPool, leaders: Mapping[PartitionKey, int], ranges: Iterable[UnreadRange]
) -> dict[UnreadRange, int]:
    """`next_readable_offset` of each range whose leader answers: one small Fetch per range."""

    async def ask(unread: UnreadRange) -> tuple[UnreadRange, int]:
        link = await links.node(leaders[unread.partition])
        request = _fetch_request(unread)
        answer = await link.call(request, FetchResponse, version_max=FETCH_VERSION_MAX)
        offset = unread.committed
        for part in (item for one in answer.responses for item in one.partitions):
            if not part.error_code and part.records is not None:
                aborted = part.aborted_transactions or ()
                offset = next_readable_offset(part.records, aborted, unread.committed)
        return unread, offset

    led = [unread for unread in ranges if leaders.get(unread.partition, -1) >= 0]
    return dict(await gather_available(map(ask, led)))


def _fetch_request(unread: UnreadRange) -> FetchRequest:
    topic, index = unread.partition
    partition = FetchPartition(
        partition=index, fetch_offset=unread.committed, partition_max_bytes=FETCH_BYTES_MAX
    )
    return FetchRequest(
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=FETCH_BYTES_MAX,
        isolation_level=READ_COMMITTED,
        topics=[FetchTopic(topic=topic, partitions=[partition])],
    )
