"""`kafkaesque topic`: create, list, describe, alter, delete, delete-records."""

from __future__ import annotations

from typing import Any

import click

from kafkaesque.admin import topics
from kafkaesque.admin.connection import ClusterConnection
from kafkaesque.admin.offsets import partitions_of
from kafkaesque.admin.settings import alter_settings
from kafkaesque.cli.failures import raise_failures, usage
from kafkaesque.cli.options import client_options, complete_topics, confirm, examples, read_pair
from kafkaesque.cli.render import Column, Screen

_PARTITION_COLUMNS = [
    Column("partition", "Partition", "count"),
    Column("leader", "Leader"),
    Column("replicas", "Replicas"),
    Column("isr", "In sync"),
    Column("earliest", "Earliest", "count"),
    Column("latest", "Latest", "count"),
    Column("records", "Records", "count"),
]

name_argument = click.argument("name", metavar="TOPIC", shell_complete=complete_topics)
names_argument = click.argument(
    "names", metavar="TOPIC...", nargs=-1, required=True, shell_complete=complete_topics
)


@click.group()
def topic() -> None:
    """Create, list, describe, alter and delete topics."""


@topic.command(
    epilog=examples(
        "kafkaesque topic create orders",
        "kafkaesque topic create orders payments --partitions 6 --replication-factor 3",
        "kafkaesque topic create users --config cleanup.policy=compact --if-not-exists",
    )
)
@names_argument
@click.option(
    "-p",
    "--partitions",
    type=click.IntRange(min=1),
    help="Number of partitions.  [default: num.partitions of the broker]",
)
@click.option(
    "-r",
    "--replication-factor",
    type=click.IntRange(min=1),
    help="Replicas of each partition.  [default: default.replication.factor of the broker]",
)
@click.option(
    "-c",
    "--config",
    "configs",
    multiple=True,
    metavar="NAME=VALUE",
    help="Set a topic setting; may be repeated.",
)
@click.option("--if-not-exists", is_flag=True, help="Do not fail if the topic exists.")
@click.option(
    "--validate-only", is_flag=True, help="Validate the request without creating anything."
)
@client_options()
def create(
    names: tuple[str, ...],
    partitions: int | None,
    replication_factor: int | None,
    configs: tuple[str, ...],
    if_not_exists: bool,
    validate_only: bool,
    connection: ClusterConnection,
    screen: Screen,
) -> None:
    """Create topics."""
    outcomes = topics.create_topics(
        connection,
        names,
        partitions=partitions,
        replication_factor=replication_factor,
        settings=dict(read_pair(text) for text in configs),
        if_not_exists=if_not_exists,
        validate_only=validate_only,
    )
    _show_outcomes(screen, outcomes)


def _show_outcomes(screen: Screen, outcomes: list[topics.TopicOutcome]) -> None:
    """Print one line per topic; raise the failures."""

    def show() -> None:
        for outcome in outcomes:
            if outcome.error is None:
                screen.line(f"{outcome.topic}: {outcome.done}")

    screen.document({"topics": [outcome.row() for outcome in outcomes]}, show)
    raise_failures([outcome.error for outcome in outcomes if outcome.error is not None])


@topic.command(
    "list",
    epilog=examples(
        "kafkaesque topic list",
        "kafkaesque topic list --details",
        "kafkaesque topic list --json | jq -r '.topics[].topic'",
    ),
)
@click.option(
    "--internal", is_flag=True, help="Also list internal topics (names that start with __)."
)
@click.option("-l", "--details", "--all", "details", is_flag=True, help="Also count records.")
@client_options()
def list_topics(
    internal: bool, details: bool, connection: ClusterConnection, screen: Screen
) -> None:
    """List topics."""
    rows = topics.list_topics(connection, internal=internal, details=details)
    columns = [
        Column("topic", "Topic", style="bold"),
        Column("partitions", "Partitions", "count"),
        Column("replication_factor", "Replicas", "count"),
    ]
    if details:
        columns.append(Column("records", "Records", "count"))
    screen.document(
        {"topics": rows},
        lambda: screen.table(
            columns, rows, "no topics yet: `kafkaesque topic create NAME` creates one"
        ),
    )


@topic.command(
    epilog=examples(
        "kafkaesque topic describe orders",
        "kafkaesque topic describe orders --json | jq '.topics[0].partitions[].leader'",
    )
)
@names_argument
@client_options()
def describe(names: tuple[str, ...], connection: ClusterConnection, screen: Screen) -> None:
    """Show partitions, offsets and settings that differ from the default.

    Records is the difference of the latest and the earliest offset: an upper bound for topics that
    are compacted or written by transactions.
    """
    rows = topics.describe_topics(connection, names)
    screen.document({"topics": rows}, lambda: show_descriptions(screen, rows))


@topic.command(
    epilog=examples(
        "kafkaesque topic alter orders --partitions 12",
        "kafkaesque topic alter orders --set retention.ms=86400000 --unset segment.bytes",
    )
)
@name_argument
@click.option("-p", "--partitions", type=click.IntRange(min=1), help="New number of partitions.")
@click.option(
    "--set", "sets", multiple=True, metavar="NAME=VALUE", help="Change a setting; may be repeated."
)
@click.option(
    "--unset",
    "unsets",
    multiple=True,
    metavar="NAME",
    help="Reset a setting to its default; may be repeated.",
)
@client_options()
def alter(
    name: str,
    partitions: int | None,
    sets: tuple[str, ...],
    unsets: tuple[str, ...],
    connection: ClusterConnection,
    screen: Screen,
) -> None:
    """Add partitions or change settings.

    The number of partitions can only grow. Existing records stay where they are, so new records may go
    to another partition than older ones with the same key.
    """
    if partitions is None and not sets and not unsets:
        raise usage("Nothing to change: use --partitions, --set or --unset.")
    changes: dict[str, Any] = {}
    if sets or unsets:
        settings = dict(read_pair(text) for text in sets)
        alter_settings(connection, "topic", name, settings, unsets)
        changes |= {"set": settings, "unset": list(unsets)}
    if partitions is not None:
        topics.add_partitions(connection, name, partitions)
        changes["partitions"] = partitions
    screen.document({"topic": name, **changes}, lambda: screen.line(f"{name}: altered"))


@topic.command(
    epilog=examples("kafkaesque topic delete orders", "kafkaesque topic delete a b c --yes")
)
@names_argument
@click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation.")
@client_options()
def delete(
    names: tuple[str, ...], yes: bool, connection: ClusterConnection, screen: Screen
) -> None:
    """Delete topics and all their records."""
    connection.describe_topics(names)
    confirm(yes, f"Delete {_listed(names)} with all records?")
    _show_outcomes(screen, topics.delete_topics(connection, names))


def _listed(names: tuple[str, ...]) -> str:
    kind = "topic" if len(names) == 1 else f"{len(names)} topics:"
    return f"{kind} {', '.join(names)}"


@topic.command(
    "delete-records",
    epilog=examples(
        "kafkaesque topic delete-records orders --before-offset 0:1500 --before-offset 1:900",
        "kafkaesque topic delete-records orders --all --yes",
    ),
)
@name_argument
@click.option(
    "--before-offset",
    "positions",
    multiple=True,
    metavar="PARTITION:OFFSET",
    help="Delete records before this offset; may be repeated.",
)
@click.option("--all", "everything", is_flag=True, help="Delete all records of all partitions.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation.")
@client_options()
def delete_records(
    name: str,
    positions: tuple[str, ...],
    everything: bool,
    yes: bool,
    connection: ClusterConnection,
    screen: Screen,
) -> None:
    """Delete the oldest records of a topic; the topic stays."""
    if everything == bool(positions):
        raise usage("Use either --before-offset PARTITION:OFFSET or --all.")
    limits = dict(_read_position(text) for text in positions)
    partitions = partitions_of(connection, [name], only=limits)
    confirm(yes, f"Delete records of '{name}' in {len(partitions)} partition(s)?")
    rows = topics.delete_records(connection, partitions, limits)
    columns = [Column("partition", "Partition"), Column("earliest", "Earliest", "count")]
    columns.append(Column("latest", "Latest", "count"))
    screen.document({"topic": name, "partitions": rows}, lambda: screen.table(columns, rows))


def _read_position(text: str) -> tuple[int, int]:
    partition, _, offset = text.partition(":")
    if not (partition.isdecimal() and offset.isdecimal()):
        raise usage(f"'{text}' is not PARTITION:OFFSET, as in 0:1500.")
    return int(partition), int(offset)


def show_descriptions(screen: Screen, rows: list[dict[str, Any]]) -> None:
    for number, topic in enumerate(rows):
        if number:
            screen.line()
        screen.heading(topic["topic"])
        pairs = [
            ("id", topic["id"]),
            ("partitions", topic["partition_count"]),
            ("replicas", topic["replication_factor"]),
            ("records", topic["records"]),
        ]
        if topic["internal"]:
            pairs.append(("internal", True))
        settings = [f"{name}={value}" for name, value in topic["configs"].items()]
        pairs += [("config" if index == 0 else "", text) for index, text in enumerate(settings)]
        screen.fields(pairs)
        screen.line()
        screen.table(_PARTITION_COLUMNS, topic["partitions"])
