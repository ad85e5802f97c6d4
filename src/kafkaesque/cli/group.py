"""`kafkaesque group`: list, describe, reset, delete, delete-offsets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import click
from confluent_kafka import (
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    ConsumerGroupType,
    KafkaError,
    TopicPartition,
)

from kafkaesque.admin.cluster import BrokerNode
from kafkaesque.admin.rules.offset_reset import Bounds, OffsetChange, OffsetSpec, Shift, plan_reset
from kafkaesque.cli.admin_types import ConsumerGroupDescription
from kafkaesque.cli.client import Connection
from kafkaesque.cli.failures import CommandFailure, TargetNotFound, usage
from kafkaesque.cli.offset_spec import parse_offset_spec
from kafkaesque.cli.offsets import Partition, fetch_bounds, partitions_of
from kafkaesque.cli.options import client_options, complete_topics, examples
from kafkaesque.cli.render import Column, Screen
from kafkaesque.cli.topic import confirm

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

_CHANGE_COLUMNS = [
    Column("topic", "Topic", style="bold"),
    Column("partition", "Partition", "count"),
    Column("current", "Current", "count"),
    Column("new", "New", "count"),
    Column("change", "Change", "count"),
    Column("lag", "Lag then", "count"),
]


@click.group()
def group() -> None:
    """List consumer groups, show their lag, reset their offsets."""


@group.command("list", epilog=examples("kafkaesque group list", "kafkaesque group list --json"))
@client_options()
def list_groups(connection: Connection, screen: Screen) -> None:
    """List consumer groups."""
    rows = list_rows(connection)
    columns = [
        Column("group", "Group", style="bold"),
        Column("state", "State", "state"),
        Column("protocol", "Protocol"),
        Column("assignor", "Assignor"),
        Column("members", "Members", "count"),
    ]
    screen.document({"groups": rows}, lambda: screen.table(columns, rows, "no consumer groups"))


@group.command(
    epilog=examples(
        "kafkaesque group describe billing",
        "kafkaesque group describe billing --json | jq '.groups[0].lag'",
    )
)
@click.argument("names", metavar="GROUP...", nargs=-1, required=True)
@client_options()
def describe(names: tuple[str, ...], connection: Connection, screen: Screen) -> None:
    """Show members, assignment, committed offsets and lag."""
    rows = [describe_row(connection, name) for name in dict.fromkeys(names)]
    screen.document({"groups": rows}, lambda: show_groups(screen, rows))


@group.command(
    epilog=examples(
        "kafkaesque group reset billing --all-topics --to earliest           # shows the plan",
        "kafkaesque group reset billing --all-topics --to earliest --execute",
        "kafkaesque group reset billing --topic orders:0,1 --to 1500 --execute",
        "kafkaesque group reset billing --topic orders --to 2026-01-31T08:00:00Z",
        "kafkaesque group reset billing --topic orders --shift -100",
    )
)
@click.argument("name", metavar="GROUP")
@click.option(
    "-t",
    "--topic",
    "targets",
    multiple=True,
    metavar="TOPIC[:PARTITION,...]",
    shell_complete=complete_topics,
    help="Topic or partitions to reset; may be repeated.",
)
@click.option("--all-topics", is_flag=True, help="All partitions with a committed offset.")
@click.option(
    "--to", "place", metavar="WHERE", help="earliest, latest, an offset, an ISO time, @EPOCH_MS."
)
@click.option(
    "--shift", type=int, metavar="N", help="Move forward by N records; a negative N moves back."
)
@click.option("--execute", is_flag=True, help="Apply the plan. Without it the plan is only shown.")
@client_options()
def reset(
    name: str,
    targets: tuple[str, ...],
    all_topics: bool,
    place: str | None,
    shift: int | None,
    execute: bool,
    connection: Connection,
    screen: Screen,
) -> None:
    """Move the committed offsets of a group that has no members.

    Changes nothing without --execute. New offsets are limited to the range of each partition.
    """
    target = _reset_target(place, shift)
    if all_topics == bool(targets):
        raise usage("Use either --topic TOPIC[:PARTITION,...] or --all-topics.")
    committed = _committed_when_idle(connection, name)
    partitions = list(committed) if all_topics else _targets(connection, targets)
    spec = target if isinstance(target, OffsetSpec) else None
    bounds = fetch_bounds(connection, partitions, spec)
    changes = plan_reset(committed, bounds, target)
    if not changes:
        raise TargetNotFound(
            f"group '{name}' has no committed offsets there, so nothing can be reset"
        )
    if execute:
        _apply(connection, name, changes)
    rows = [change.document() for change in changes]
    screen.document(
        {"group": name, "executed": execute, "changes": rows},
        lambda: screen.table(_CHANGE_COLUMNS, rows),
    )
    if execute:
        screen.note(f"the offsets of group '{name}' were reset")
    else:
        screen.note("nothing was changed, this is the plan: add --execute to apply it")


def _reset_target(place: str | None, shift: int | None) -> OffsetSpec | Shift:
    if (place is None) == (shift is None):
        raise usage("Use either --to WHERE or --shift N.")
    if shift is not None:
        return Shift(shift)
    try:
        return parse_offset_spec(place or "")
    except ValueError as error:
        raise usage(f"--to: {error}.") from None


def _targets(connection: Connection, targets: tuple[str, ...]) -> list[Partition]:
    partitions: dict[Partition, None] = {}
    for text in targets:
        try:
            topic, numbers = parse_target(text)
        except ValueError as error:
            raise usage(f"--topic: {error}.") from None
        partitions.update(dict.fromkeys(partitions_of(connection, [topic], numbers)))
    return list(partitions)


def parse_target(text: str) -> tuple[str, list[int]]:
    """`orders` or `orders:0,2` to a topic and its partitions (none: all). Raises ValueError."""
    topic, colon, numbers = text.rpartition(":")
    if not colon:
        return text, []
    parts = numbers.split(",")
    if not topic or not all(part.isdecimal() for part in parts):
        raise ValueError(f"'{text}' is not TOPIC or TOPIC:PARTITION,...")
    return topic, [int(part) for part in parts]


def _committed_when_idle(connection: Connection, name: str) -> dict[Partition, int]:
    """Committed offsets of a group without members. A group that does not exist has none; setting its
    offsets prepares it for a new consumer."""
    found = describe_groups(connection, [name])[name]
    if found is None:
        return {}
    if found.state != ConsumerGroupState.EMPTY:
        clients = sorted({member.client_id for member in found.members})
        raise CommandFailure(
            f"group '{name}' is in use by {len(found.members)} member(s) "
            f"({', '.join(clients)}), which would overwrite the new offsets",
            "stop its consumers, wait for their sessions to expire, and try again",
        )
    return committed_offsets(connection, name)


def _apply(connection: Connection, name: str, changes: list[OffsetChange]) -> None:
    wanted = [TopicPartition(item.topic, item.partition, item.new) for item in changes]
    futures = connection.admin.alter_consumer_group_offsets(
        [ConsumerGroupTopicPartitions(name, wanted)], request_timeout=connection.timeout_s
    )
    answer = connection.wait(futures[name], f"reset the offsets of group '{name}'")
    for item in answer.topic_partitions or []:
        if item.error is not None:
            connection.fail(item.error, f"reset {item.topic}-{item.partition} of group '{name}'")


@group.command(epilog=examples("kafkaesque group delete billing --yes"))
@click.argument("names", metavar="GROUP...", nargs=-1, required=True)
@click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation.")
@client_options()
def delete(names: tuple[str, ...], yes: bool, connection: Connection, screen: Screen) -> None:
    """Delete groups that have no members, with their committed offsets."""
    wanted = list(dict.fromkeys(names))
    for name in wanted:
        existing_group(connection, name)
    confirm(yes, f"Delete {', '.join(wanted)} and the committed offsets?")
    futures = connection.admin.delete_consumer_groups(wanted, request_timeout=connection.timeout_s)
    for name, future in futures.items():
        connection.wait(future, f"delete group '{name}'")
    screen.document(
        {"groups": [{"group": name, "result": "deleted"} for name in wanted]},
        lambda: screen.line("\n".join(f"{name}: deleted" for name in wanted)),
    )


@group.command(
    "delete-offsets", epilog=examples("kafkaesque group delete-offsets billing --topic orders")
)
@click.argument("name", metavar="GROUP")
@click.option(
    "-t",
    "--topic",
    "targets",
    multiple=True,
    required=True,
    metavar="TOPIC[:PARTITION,...]",
    help="Topic or partitions; may be repeated.",
)
@client_options()
def delete_offsets(
    name: str, targets: tuple[str, ...], connection: Connection, screen: Screen
) -> None:
    """Delete the committed offsets of some partitions.

    Fails for topics that a member of the group is subscribed to.
    """
    node = existing_group(connection, name).coordinator
    coordinator = BrokerNode(node.id, node.host, node.port)
    topics: dict[str, list[int]] = {}
    for topic, index in _targets(connection, targets):
        topics.setdefault(topic, []).append(index)
    error, errors = connection.cluster.delete_offsets(coordinator, name, topics)
    for code in [error, *errors.values()]:
        if code:
            connection.fail(KafkaError(code), f"delete offsets of group '{name}'")
    rows: list[dict[str, Any]] = [{"topic": topic, "partition": index} for topic, index in errors]
    screen.document(
        {"group": name, "deleted": rows},
        lambda: screen.line(f"{name}: deleted the offsets of {len(rows)} partition(s)"),
    )


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
        except TargetNotFound:
            found[name] = None
    return found


def existing_group(connection: Connection, name: str) -> ConsumerGroupDescription:
    group = describe_groups(connection, [name])[name]
    if group is None:
        raise TargetNotFound(
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
