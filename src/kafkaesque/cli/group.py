"""`kafkaesque group`: list, describe, reset, delete, delete-offsets."""

from __future__ import annotations

from typing import Any

import click

from kafkaesque.admin import groups
from kafkaesque.admin.connection import ClusterConnection
from kafkaesque.admin.offsets import partitions_of
from kafkaesque.admin.rules.offset_reset import OffsetSpec, Partition, Shift
from kafkaesque.cli.failures import usage
from kafkaesque.cli.offset_spec import parse_offset_spec
from kafkaesque.cli.options import client_options, complete_topics, confirm, examples
from kafkaesque.cli.render import Column, Screen

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
def list_groups(connection: ClusterConnection, screen: Screen) -> None:
    """List consumer groups."""
    rows = groups.list_groups(connection)
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
def describe(names: tuple[str, ...], connection: ClusterConnection, screen: Screen) -> None:
    """Show members, assignment, committed offsets and lag."""
    rows = [groups.describe_group(connection, name) for name in dict.fromkeys(names)]
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
@click.option(
    "--all-topics", is_flag=True, help="Reset all partitions that have a committed offset."
)
@click.option(
    "--to",
    "place",
    metavar="WHERE",
    help="Where to move: earliest, latest, an offset, an ISO time, or @EPOCH_MS.",
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
    connection: ClusterConnection,
    screen: Screen,
) -> None:
    """Reset the committed offsets of a group that has no members.

    Changes nothing without --execute. New offsets are limited to the range of each partition.
    """
    target = _reset_target(place, shift)
    if all_topics == bool(targets):
        raise usage("Use either --topic TOPIC[:PARTITION,...] or --all-topics.")
    partitions = None if all_topics else _partitions(connection, targets)
    changes = groups.plan_group_reset(connection, name, target, partitions)
    if execute:
        groups.reset_offsets(connection, name, changes)
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


def _partitions(connection: ClusterConnection, targets: tuple[str, ...]) -> list[Partition]:
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


@group.command(epilog=examples("kafkaesque group delete billing --yes"))
@click.argument("names", metavar="GROUP...", nargs=-1, required=True)
@click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation.")
@client_options()
def delete(
    names: tuple[str, ...], yes: bool, connection: ClusterConnection, screen: Screen
) -> None:
    """Delete groups that have no members, with their committed offsets."""
    wanted = list(dict.fromkeys(names))
    for name in wanted:
        groups.existing_group(connection, name)
    confirm(yes, f"Delete {', '.join(wanted)} and the committed offsets?")
    groups.delete_groups(connection, wanted)
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
    name: str, targets: tuple[str, ...], connection: ClusterConnection, screen: Screen
) -> None:
    """Delete the committed offsets of some partitions.

    Fails for topics that a member of the group is subscribed to.
    """
    deleted = groups.delete_offsets(connection, name, _partitions(connection, targets))
    rows: list[dict[str, Any]] = [{"topic": topic, "partition": index} for topic, index in deleted]
    screen.document(
        {"group": name, "deleted": rows},
        lambda: screen.line(f"{name}: deleted the offsets of {len(rows)} partition(s)"),
    )


def show_groups(screen: Screen, rows: list[dict[str, Any]]) -> None:
    for number, group in enumerate(rows):
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
            members = [{**m, "assigned": " ".join(m["partitions"])} for m in group["members"]]
            screen.table(_MEMBER_COLUMNS, members)
