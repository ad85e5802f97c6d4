"""Requests to many brokers at once, with plain values as results. Asyncio.

A broker that does not answer is missing from the results and is not an error. ConnectionLost is raised
only if no broker answers.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple, TypeVar

from kafkaesque.client.wire.errors import ApiUnsupported, ConnectionLost
from kafkaesque.client.wire.pool import ConnectionPool
from kafkaesque.wire.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from kafkaesque.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from kafkaesque.wire.messages.metadata import MetadataRequest, MetadataResponse

LATEST: Final = -1
EARLIEST: Final = -2
GROUPS_AT_ONCE: Final = 100
TOPICS_AT_ONCE: Final = 200
TOPIC_RESOURCE: Final = 2
"""Resource type of a topic in DescribeConfigs."""
METADATA_VERSION_MAX: Final = 12
LIST_OFFSETS_VERSION_MAX: Final = 7

T = TypeVar("T")
Partition = tuple[str, int]


class CoordinatedGroup(NamedTuple):
    """A consumer group and the broker that coordinates it."""

    group: ListedGroup
    coordinator: int


async def gather_available(awaitables: Iterable[Awaitable[T]]) -> list[T]:
    """The results of the brokers that answered and support the request."""
    found = await asyncio.gather(*awaitables, return_exceptions=True)
    kept: list[T] = []
    for item in found:
        if isinstance(item, BaseException):
            if not isinstance(item, ConnectionLost | ApiUnsupported):
                raise item
        else:
            kept.append(item)
    return kept


def chunks(names: Sequence[str], size: int) -> Iterator[Sequence[str]]:
    return (names[start : start + size] for start in range(0, len(names), size))


async def fetch_metadata(pool: ConnectionPool) -> MetadataResponse:
    """Brokers, the controller and all topics, from any broker."""
    connection = await pool.any()
    request = MetadataRequest(topics=None, allow_auto_topic_creation=False)
    return await connection.call(request, MetadataResponse, version_max=METADATA_VERSION_MAX)


async def list_offsets(
    pool: ConnectionPool, leaders: Mapping[Partition, int], timestamp: int = LATEST
) -> dict[Partition, int]:
    """The offset at `timestamp` (LATEST, EARLIEST or milliseconds) of each partition with a leader.

    A partition whose records are all older than a time in milliseconds is not in the result.
    """
    return {key: row.offset for key, row in await _list_offsets(pool, leaders, timestamp)}


async def oldest_timestamps(
    pool: ConnectionPool, leaders: Mapping[Partition, int]
) -> dict[Partition, int]:
    """The timestamp of the first record of each partition that has one, in milliseconds."""
    return {key: row.timestamp for key, row in await _list_offsets(pool, leaders, 0)}


async def _list_offsets(
    pool: ConnectionPool, leaders: Mapping[Partition, int], timestamp: int
) -> list[tuple[Partition, ListOffsetsPartitionResponse]]:
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
        connection = await pool.node(leader)
        return await connection.call(
            request, ListOffsetsResponse, version_max=LIST_OFFSETS_VERSION_MAX
        )

    answers = await gather_available(ask(leader, topics) for leader, topics in by_leader.items())
    return [
        ((topic.name, row.partition_index), row)
        for answer in answers
        for topic in answer.topics
        for row in topic.partitions
        if not row.error_code and row.offset >= 0
    ]


async def list_groups(pool: ConnectionPool, brokers: Iterable[int]) -> list[CoordinatedGroup]:
    """The consumer groups of a cluster: each broker lists those that it coordinates."""

    async def ask(broker: int) -> list[CoordinatedGroup]:
        connection = await pool.node(broker)
        answer = await connection.call(ListGroupsRequest(), ListGroupsResponse)
        return [CoordinatedGroup(group, broker) for group in answer.groups]

    return [item for part in await gather_available(map(ask, brokers)) for item in part]
