"""Kafka requests to plain values: each function asks one thing of the brokers that can tell it.

A broker that does not answer leaves a gap in the values, never an error: the cluster is more than
one broker. Unreachable is raised only where nobody answers at all.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple, TypeVar

from kafkaesque.console.cluster.link import KafkaLink, NotOffered, Unreachable
from kafkaesque.console.cluster.links import KafkaLinks
from kafkaesque.console.rules.view import Document, Place, QuorumMember, QuorumView
from kafkaesque.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
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
from kafkaesque.wire.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from kafkaesque.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from kafkaesque.wire.messages.metadata import MetadataRequest, MetadataResponse
from kafkaesque.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
)

LATEST: Final = -1
EARLIEST: Final = -2
GROUPS_AT_ONCE: Final = 100
TOPIC_RESOURCE: Final = 2
TOPIC_CONFIG_SOURCE: Final = 1
"""DYNAMIC_TOPIC_CONFIG: set for this very topic."""
TOPICS_AT_ONCE: Final = 200
CONTROLLER_LOG: Final = "__cluster_metadata"

T = TypeVar("T")


class Listed(NamedTuple):
    """A consumer group and the broker that coordinates it."""

    group: ListedGroup
    coordinator: int


class LogDirs(NamedTuple):
    """What a broker keeps: sizes and lags of replicas by place, bytes of its disks."""

    sizes: dict[Place, int]
    lags: dict[Place, int]
    total_bytes: int | None
    free_bytes: int | None


async def answered(awaitables: Iterable[Awaitable[T]]) -> list[T]:
    """The values of those that did not fail for want of a broker or of the request."""
    found = await asyncio.gather(*awaitables, return_exceptions=True)
    kept: list[T] = []
    for item in found:
        if isinstance(item, BaseException):
            if not isinstance(item, Unreachable | NotOffered):
                raise item
        else:
            kept.append(item)
    return kept


async def metadata(links: KafkaLinks) -> MetadataResponse:
    link = await links.any()
    request = MetadataRequest(topics=None, allow_auto_topic_creation=False)
    return await link.call(request, MetadataResponse, version_max=12)


async def offsets(
    links: KafkaLinks, leaders: Mapping[Place, int], timestamp: int = LATEST
) -> dict[Place, int]:
    """The offset at `timestamp` (LATEST, EARLIEST or milliseconds) of each place that has a leader.

    A place whose records are all older than a time in milliseconds is not in the answer.
    """
    return {place: item.offset for place, item in await _listed(links, leaders, timestamp)}


async def oldest_times(links: KafkaLinks, leaders: Mapping[Place, int]) -> dict[Place, int]:
    """The time of the first record of each place that has one, in milliseconds."""
    return {place: item.timestamp for place, item in await _listed(links, leaders, 0)}


async def _listed(
    links: KafkaLinks, leaders: Mapping[Place, int], timestamp: int
) -> list[tuple[Place, ListOffsetsPartitionResponse]]:
    by_leader: dict[int, dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
    for (topic, index), leader in leaders.items():
        if leader >= 0:
            by_leader[leader][topic].append(index)

    async def ask(leader: int, topics: Mapping[str, list[int]]) -> ListOffsetsResponse:
        request = ListOffsetsRequest(
            replica_id=-1,
            topics=[
                ListOffsetsTopic(
                    name=name,
                    partitions=[
                        ListOffsetsPartition(partition_index=index, timestamp=timestamp)
                        for index in indexes
                    ],
                )
                for name, indexes in topics.items()
            ],
        )
        link = await links.node(leader)
        return await link.call(request, ListOffsetsResponse, version_max=7)

    answers = await answered(ask(leader, topics) for leader, topics in by_leader.items())
    return [
        ((topic.name, item.partition_index), item)
        for answer in answers
        for topic in answer.topics
        for item in topic.partitions
        if not item.error_code and item.offset >= 0
    ]


async def groups(links: KafkaLinks, brokers: Iterable[int]) -> list[Listed]:
    """Every broker tells the groups that it coordinates."""

    async def ask(broker: int) -> list[Listed]:
        link = await links.node(broker)
        answer = await link.call(ListGroupsRequest(), ListGroupsResponse)
        return [Listed(group, broker) for group in answer.groups]

    return [item for part in await answered(map(ask, brokers)) for item in part]


def chunks(names: Sequence[str], size: int) -> Iterator[Sequence[str]]:
    return (names[start : start + size] for start in range(0, len(names), size))


async def committed(
    links: KafkaLinks, by_coordinator: Mapping[int, Sequence[str]]
) -> dict[str, dict[Place, int]]:
    """Committed offsets of every group that answered (KIP-709: many groups in one request)."""

    async def ask(coordinator: int, names: Sequence[str]) -> dict[str, dict[Place, int]]:
        link = await links.node(coordinator)
        if link.version_of(OffsetFetchRequest, 9) >= 8:
            return await _committed_of_many(link, names)
        return dict(await answered(_committed_of_one(link, name) for name in names))

    parts = await answered(
        ask(coordinator, chunk)
        for coordinator, names in by_coordinator.items()
        for chunk in chunks(names, GROUPS_AT_ONCE)
    )
    return {name: found for part in parts for name, found in part.items()}


async def _committed_of_many(link: KafkaLink, names: Sequence[str]) -> dict[str, dict[Place, int]]:
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


async def _committed_of_one(link: KafkaLink, name: str) -> tuple[str, dict[Place, int]]:
    request = OffsetFetchRequest(group_id=name, topics=None)
    answer = await link.call(request, OffsetFetchResponse, version_max=7)
    return name, {
        (topic.name, item.partition_index): item.committed_offset
        for topic in answer.topics
        for item in topic.partitions
        if not item.error_code and item.committed_offset >= 0
    }


async def log_dirs(links: KafkaLinks, brokers: Iterable[int]) -> dict[int, LogDirs]:
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
            sizes={place: item.partition_size for place, item in replicas},
            lags={place: item.offset_lag for place, item in replicas},
            total_bytes=sum(totals) if totals else None,
            free_bytes=sum(frees) if frees else None,
        )

    return dict(await answered(map(ask, brokers)))


async def topic_settings(
    links: KafkaLinks, topics: Sequence[str], names: Sequence[str]
) -> dict[str, dict[str, str | None]]:
    """The settings called `names` of every topic."""

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

    answers = await answered(map(ask, chunks(topics, TOPICS_AT_ONCE)))
    return {
        result.resource_name: {item.name: item.value for item in result.configs}
        for answer in answers
        for result in answer.results
        if not result.error_code
    }


async def all_topic_settings(links: KafkaLinks, topic: str) -> list[Document]:
    """Every setting of one topic, with what it means where the broker says so."""
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


async def quorum(links: KafkaLinks, controller: int) -> QuorumView | None:
    """The controller's Raft group; None where this Kafka does not tell."""
    asked = TopicData(topic_name=CONTROLLER_LOG, partitions=[PartitionData(partition_index=0)])
    try:
        link = await (links.node(controller) if controller >= 0 else links.any())
        answer = await link.call(DescribeQuorumRequest(topics=[asked]), DescribeQuorumResponse)
    except (Unreachable, NotOffered):
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
