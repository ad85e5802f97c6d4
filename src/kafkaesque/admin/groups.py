"""Consumer groups: list, describe with lag, reset offsets, delete. Blocking."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from confluent_kafka import (
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    ConsumerGroupType,
    TopicPartition,
)

from kafkaesque.admin.connection import ClusterConnection
from kafkaesque.admin.errors import AdminError, ResourceNotFound, refusal
from kafkaesque.admin.librdkafka_types import ConsumerGroupDescription
from kafkaesque.admin.offsets import fetch_bounds
from kafkaesque.admin.rules.offset_reset import (
    Bounds,
    OffsetChange,
    OffsetSpec,
    Partition,
    Shift,
    plan_reset,
)

STATES: Mapping[Any, str] = {
    ConsumerGroupState.PREPARING_REBALANCING: "rebalancing",
    ConsumerGroupState.COMPLETING_REBALANCING: "rebalancing",
    ConsumerGroupState.STABLE: "stable",
    ConsumerGroupState.EMPTY: "empty",
    ConsumerGroupState.DEAD: "dead",
}
PROTOCOLS: Mapping[Any, str] = {
    ConsumerGroupType.CLASSIC: "classic",
    ConsumerGroupType.CONSUMER: "consumer",
}


def list_groups(connection: ClusterConnection) -> list[dict[str, Any]]:
    """One row for each group, sorted by name."""
    future = connection.admin.list_consumer_groups(request_timeout=connection.timeout_s)
    listing = connection.wait(future, "list consumer groups")
    names = sorted(item.group_id for item in listing.valid or [])
    return [
        {**_identity(name, group), "members": len(group.members)}
        for name, group in _find_groups(connection, names).items()
        if group is not None
    ]


def describe_group(connection: ClusterConnection, name: str) -> dict[str, Any]:
    """Members, assignment, and committed offset, end and lag of every partition."""
    group = existing_group(connection, name)
    members: list[dict[str, Any]] = [
        {
            "member": member.member_id,
            "instance": member.group_instance_id,
            "client_id": member.client_id,
            "host": member.host.lstrip("/"),
            "partitions": sorted(
                (item.topic, item.partition) for item in member.assignment.topic_partitions
            ),
        }
        for member in group.members
    ]
    owners = {tuple(key): member for member in members for key in member["partitions"]}
    committed = committed_offsets(connection, name)
    keys = sorted({*committed, *owners})
    topics = connection.metadata().topics
    bounds = fetch_bounds(connection, [key for key in keys if key[0] in topics])
    offsets = [_offset_row(key, committed, bounds, owners.get(key)) for key in keys]
    coordinator = group.coordinator
    return {
        **_identity(name, group),
        "coordinator": {
            "id": coordinator.id,
            "host": coordinator.host,
            "port": coordinator.port,
        },
        "lag": sum(row["lag"] or 0 for row in offsets),
        "members": [
            {**member, "partitions": [f"{t}-{p}" for t, p in member["partitions"]]}
            for member in members
        ],
        "offsets": offsets,
    }


def _identity(name: str, group: ConsumerGroupDescription) -> dict[str, Any]:
    return {
        "group": name,
        "state": STATES.get(group.state, "unknown"),
        "protocol": PROTOCOLS.get(group.type, "unknown"),
        "assignor": group.partition_assignor or None,
    }


def _offset_row(
    key: Partition,
    committed: Mapping[Partition, int],
    bounds: Mapping[Partition, Bounds],
    owner: Mapping[str, Any] | None,
) -> dict[str, Any]:
    here, at = bounds.get(key), committed.get(key)
    return {
        "topic": key[0],
        "partition": key[1],
        "committed": at,
        "end": here.end if here else None,
        "lag": max(here.end - at, 0) if here and at is not None else None,
        "member": owner["member"] if owner else None,
        "client_id": owner["client_id"] if owner else None,
    }


def existing_group(connection: ClusterConnection, name: str) -> ConsumerGroupDescription:
    """The description of a group. Raises ResourceNotFound."""
    group = _find_groups(connection, [name])[name]
    if group is None:
        raise ResourceNotFound(
            f"there is no consumer group '{name}'", "`kafkaesque group list` lists the groups"
        )
    return group


def _find_groups(
    connection: ClusterConnection, names: Iterable[str]
) -> dict[str, ConsumerGroupDescription | None]:
    """Descriptions by name; None for a group that does not exist.

    Apache Kafka before 4.0 reports an unknown group as "dead" instead of not found (KIP-1043).
    """
    wanted = list(dict.fromkeys(names))
    if not wanted:
        return {}
    found: dict[str, ConsumerGroupDescription | None] = {}
    futures = connection.admin.describe_consumer_groups(
        wanted, request_timeout=connection.timeout_s
    )
    for name, future in futures.items():
        try:
            group = connection.wait(future, f"describe group '{name}'")
            found[name] = None if group.state == ConsumerGroupState.DEAD else group
        except ResourceNotFound:
            found[name] = None
    return found


def committed_offsets(connection: ClusterConnection, group: str) -> dict[Partition, int]:
    """The committed offset of each partition that has one."""
    futures = connection.admin.list_consumer_group_offsets(
        [ConsumerGroupTopicPartitions(group)], request_timeout=connection.timeout_s
    )
    answer = connection.wait(futures[group], f"read the offsets of group '{group}'")
    return {
        (item.topic, item.partition): item.offset
        for item in answer.topic_partitions or []
        if item.offset >= 0
    }


def plan_group_reset(
    connection: ClusterConnection,
    group: str,
    target: OffsetSpec | Shift,
    partitions: Collection[Partition] | None,
) -> list[OffsetChange]:
    """The changes that move a group without members to `target`; changes nothing.

    Without `partitions`, moves all partitions that have a committed offset. A group that does not exist
    has none; its offsets can be set for a new consumer.
    """
    committed = _committed_when_idle(connection, group)
    wanted = list(committed) if partitions is None else partitions
    spec = target if isinstance(target, OffsetSpec) else None
    changes = plan_reset(committed, fetch_bounds(connection, wanted, spec), target)
    if not changes:
        raise ResourceNotFound(
            f"group '{group}' has no committed offsets there, so nothing can be reset",
            f"`kafkaesque group describe {group}` shows its offsets",
        )
    return changes


def _committed_when_idle(connection: ClusterConnection, name: str) -> dict[Partition, int]:
    """Committed offsets of a group without members: members would overwrite new offsets."""
    found = _find_groups(connection, [name])[name]
    if found is None:
        return {}
    if found.state != ConsumerGroupState.EMPTY:
        clients = sorted({member.client_id for member in found.members})
        raise AdminError(
            f"group '{name}' is in use by {len(found.members)} member(s) "
            f"({', '.join(clients)}), which would overwrite the new offsets",
            "stop its consumers, wait for their sessions to expire, and try again",
        )
    return committed_offsets(connection, name)


def reset_offsets(
    connection: ClusterConnection, group: str, changes: Iterable[OffsetChange]
) -> None:
    """Commits the new offsets of a plan."""
    wanted = [TopicPartition(item.topic, item.partition, item.new) for item in changes]
    futures = connection.admin.alter_consumer_group_offsets(
        [ConsumerGroupTopicPartitions(group, wanted)], request_timeout=connection.timeout_s
    )
    answer = connection.wait(futures[group], f"reset the offsets of group '{group}'")
    for item in answer.topic_partitions or []:
        if item.error is not None:
            raise connection.admin_error(
                item.error, f"reset {item.topic}-{item.partition} of group '{group}'"
            )


def delete_groups(connection: ClusterConnection, names: Sequence[str]) -> None:
    """Deletes groups without members, with their committed offsets."""
    futures = connection.admin.delete_consumer_groups(
        list(names), request_timeout=connection.timeout_s
    )
    for name, future in futures.items():
        connection.wait(future, f"delete group '{name}'")


def delete_offsets(
    connection: ClusterConnection, group: str, partitions: Iterable[Partition]
) -> list[Partition]:
    """Deletes committed offsets, and returns their partitions.

    Fails for topics that a member of the group is subscribed to.
    """
    # Imported late: commands that do not need the wire protocol start faster without it.
    from kafkaesque.admin.cluster import BrokerNode

    node = existing_group(connection, group).coordinator
    topics: dict[str, list[int]] = {}
    for topic, index in partitions:
        topics.setdefault(topic, []).append(index)
    error, errors = connection.cluster.delete_offsets(
        BrokerNode(node.id, node.host, node.port), group, topics
    )
    for code in [error, *errors.values()]:
        if code:
            raise refusal(code, None, f"delete offsets of group '{group}'")
    return list(errors)
