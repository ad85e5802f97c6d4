"""Who is in a consumer group, of either kind: classic, and KIP-848's."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Final

from kafkaesque.console.cluster.asking import GROUPS_AT_ONCE, answered, chunks
from kafkaesque.console.cluster.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedConsumerGroup,
)
from kafkaesque.console.cluster.links import KafkaLinks
from kafkaesque.console.rules.view import Document
from kafkaesque.wire.messages.describe_groups import (
    DescribedGroup,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)

NEW_KIND: Final = "consumer"
"""What ListGroups calls the type of KIP-848's groups."""
PARTITIONS_READ_MAX: Final = 100_000


async def _classic(
    links: KafkaLinks, coordinator: int, names: Sequence[str]
) -> list[DescribedGroup]:
    link = await links.node(coordinator)
    request = DescribeGroupsRequest(groups=list(names))
    return (await link.call(request, DescribeGroupsResponse)).groups


async def _new(
    links: KafkaLinks, coordinator: int, names: Sequence[str]
) -> list[DescribedConsumerGroup]:
    link = await links.node(coordinator)
    request = ConsumerGroupDescribeRequest(group_ids=list(names))
    return (await link.call(request, ConsumerGroupDescribeResponse)).groups


async def member_counts(
    links: KafkaLinks, by_coordinator: Mapping[tuple[int, str], Sequence[str]]
) -> dict[str, int]:
    """Of groups by coordinator and kind; a group that nobody describes is not in the answer."""
    classic = await answered(
        _classic(links, coordinator, chunk)
        for (coordinator, kind), names in by_coordinator.items()
        if kind != NEW_KIND
        for chunk in chunks(names, GROUPS_AT_ONCE)
    )
    new = await answered(
        _new(links, coordinator, chunk)
        for (coordinator, kind), names in by_coordinator.items()
        if kind == NEW_KIND
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


async def describe_members(links: KafkaLinks, coordinator: int, name: str, kind: str) -> Document:
    """Members with what each reads. Unreachable, NotOffered."""
    if kind == NEW_KIND:
        (group,) = await _new(links, coordinator, [name])
        rows = [
            _row(member.member_id, member.instance_id, member.client_id, member.client_host,
                 [(topic.topic_name, index) for topic in member.assignment.topic_partitions
                  for index in topic.partitions])
            for member in group.members
        ]  # fmt: skip
        return {"assignor": group.assignor_name or None, "members": rows}
    (described,) = await _classic(links, coordinator, [name])
    rows = [
        _row(member.member_id, member.group_instance_id, member.client_id, member.client_host,
             read_assignment(bytes(member.member_assignment)))
        for member in described.members
    ]  # fmt: skip
    return {"assignor": described.protocol_data or None, "members": rows}


def _row(
    member: str, instance: str | None, client: str, host: str, places: list[tuple[str, int]]
) -> Document:
    return {
        "member": member,
        "instance": instance,
        "client_id": client,
        "host": host.lstrip("/"),
        "partitions": [[topic, index] for topic, index in sorted(places)],
    }


def read_assignment(data: bytes) -> list[tuple[str, int]]:
    """ConsumerProtocolAssignment, any version: the part that all have. Other bytes: nothing."""
    places: list[tuple[str, int]] = []
    try:
        (topics,) = struct.unpack_from(">i", data, 2)
        at = 6
        for _ in range(topics):
            (length,) = struct.unpack_from(">h", data, at)
            name = data[at + 2 : at + 2 + length].decode()
            at += 2 + length
            (count,) = struct.unpack_from(">i", data, at)
            if not 0 <= count <= PARTITIONS_READ_MAX:
                return places
            places += [(name, index) for index in struct.unpack_from(f">{count}i", data, at + 4)]
            at += 4 + 4 * count
    except (struct.error, UnicodeDecodeError):
        return places
    return places
