"""Rows of `group list` and `group describe`, and their output."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from confluent_kafka import ConsumerGroupState, ConsumerGroupTopicPartitions, ConsumerGroupType

from kafkaesque.admin.rules.offset_reset import Bounds
from kafkaesque.cli.admin_types import ConsumerGroupDescription
from kafkaesque.cli.client import Connection
from kafkaesque.cli.failures import NotFound
from kafkaesque.cli.offsets import Partition, fetch_bounds
from kafkaesque.cli.render import Column, Screen

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

_OFFSET_COLUMNS = [
    Column("topic", "Topic", style="bold"),
    Column("partition", "Partition", "count"),
    Column("committed", "Committed", "count"),
    Column("end", "End", "count"),
    Column("lag", "Lag", "count"),
    Column("client_id", "Client"),
]
_MEMBER_COLUMNS = [
    Column("member", "Member"),
    Column("client_id", "Client"),
    Column("host", "Host"),
    Column("assigned", "Partitions"),
]


def describe_groups(
    connection: Connection, names: Iterable[str]
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
        except NotFound:
            found[name] = None
    return found


def existing_group(connection: Connection, name: str) -> ConsumerGroupDescription:
    group = describe_groups(connection, [name])[name]
    if group is None:
        raise NotFound(
            f"there is no consumer group '{name}'", "`kafkaesque group list` lists the groups"
        )
    return group


def committed_offsets(connection: Connection, group: str) -> dict[Partition, int]:
    futures = connection.admin.list_consumer_group_offsets(
        [ConsumerGroupTopicPartitions(group)], request_timeout=connection.timeout_s
    )
    answer = connection.wait(futures[group], f"read the offsets of group '{group}'")
    return {
        (item.topic, item.partition): item.offset
        for item in answer.topic_partitions or []
        if item.offset >= 0
    }


def list_rows(connection: Connection) -> list[dict[str, Any]]:
    future = connection.admin.list_consumer_groups(request_timeout=connection.timeout_s)
    listing = connection.wait(future, "list consumer groups")
    names = sorted(item.group_id for item in listing.valid or [])
    rows = []
    for name, group in describe_groups(connection, names).items():
        if group is not None:
            rows.append({**_identity(name, group), "members": len(group.members)})
    return rows


def _identity(name: str, group: ConsumerGroupDescription) -> dict[str, Any]:
    return {
        "group": name,
        "state": STATES.get(group.state, "unknown"),
        "protocol": PROTOCOLS.get(group.type, "unknown"),
        "assignor": group.partition_assignor or None,
    }


def describe_row(connection: Connection, name: str) -> dict[str, Any]:
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


def show_groups(screen: Screen, groups: list[dict[str, Any]]) -> None:
    for number, group in enumerate(groups):
        if number:
            screen.line()
        screen.heading(group["group"])
        where = group["coordinator"]
        screen.fields(
            [
                ("state", group["state"]),
                ("protocol", ", ".join(filter(None, (group["protocol"], group["assignor"])))),
                ("coordinator", f"{where['id']} ({where['host']}:{where['port']})"),
                ("members", len(group["members"])),
                ("lag", group["lag"]),
            ]
        )
        screen.line()
        screen.table(_OFFSET_COLUMNS, group["offsets"], "no committed offsets")
        if group["members"]:
            screen.line()
            rows = [{**m, "assigned": " ".join(m["partitions"])} for m in group["members"]]
            screen.table(_MEMBER_COLUMNS, rows)
