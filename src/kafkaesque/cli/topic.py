"""`kafkaesque topic`: create, list, describe, alter, delete, delete-records."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any

import click
from confluent_kafka import KafkaError, Node, TopicPartition, TopicPartitionInfo
from confluent_kafka.cimpl import OFFSET_END

from kafkaesque.cli.admin_types import (
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    NewPartitions,
    NewTopic,
    ResourceType,
)
from kafkaesque.cli.client import Connection
from kafkaesque.cli.failures import CommandFailure, usage
from kafkaesque.cli.offsets import fetch_bounds, partitions_of
from kafkaesque.cli.options import client_options, complete_topics, examples, read_pair
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
    "-p", "--partitions", type=click.IntRange(min=1), help="[default: the broker's default]"
)
@click.option(
    "-r", "--replication-factor", type=click.IntRange(min=1), help="[default: the broker's default]"
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
    connection: Connection,
    screen: Screen,
) -> None:
    """Create topics."""
    settings = dict(read_pair(text) for text in configs)
    wanted = [
        NewTopic(
            name,
            num_partitions=partitions or -1,
            replication_factor=replication_factor or -1,
            config=settings,
        )
        for name in names
    ]
    futures = connection.admin.create_topics(
        wanted,
        validate_only=validate_only,
        request_timeout=connection.timeout_s,
        operation_timeout=connection.timeout_s,
    )
    done = "valid" if validate_only else "created"
    outcomes, failures = _collect(connection, futures, "create", done, if_not_exists)
    screen.document({"topics": outcomes}, lambda: _print_outcomes(screen, outcomes))
    _raise_last(failures)


def _collect(
    connection: Connection,
    futures: dict[str, Any],
    verb: str,
    done: str,
    tolerate_existing: bool = False,
) -> tuple[list[dict[str, Any]], list[CommandFailure]]:
    """Wait for one operation on several topics and collect all results and failures."""
    outcomes: list[dict[str, Any]] = []
    failures: list[CommandFailure] = []
    for name, future in futures.items():
        error = connection.error_of(future)
        if error is None:
            outcomes.append({"topic": name, "result": done})
        elif tolerate_existing and error.code() == KafkaError.TOPIC_ALREADY_EXISTS:
            outcomes.append({"topic": name, "result": "exists"})
        else:
            outcomes.append({"topic": name, "result": "failed", "error": error.str()})
            failures.append(connection.failure(error, f"{verb} topic '{name}'"))
    return outcomes, failures


def _print_outcomes(screen: Screen, outcomes: list[dict[str, Any]]) -> None:
    for outcome in outcomes:
        if outcome["result"] != "failed":
            screen.line(f"{outcome['topic']}: {outcome['result']}")


def _raise_last(failures: list[CommandFailure]) -> None:
    """Show all failures; the last one is raised and decides the exit code."""
    for failure in failures[:-1]:
        failure.show()
    if failures:
        raise failures[-1]


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
def list_topics(internal: bool, details: bool, connection: Connection, screen: Screen) -> None:
    """List topics."""
    rows = list_rows(connection, internal=internal, details=details)
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
def describe(names: tuple[str, ...], connection: Connection, screen: Screen) -> None:
    """Show partitions, offsets and settings that differ from the default.

    Records is the difference of the latest and the earliest offset: an upper bound for topics that
    are compacted or written by transactions.
    """
    topics = describe_rows(connection, names)
    screen.document({"topics": topics}, lambda: show_descriptions(screen, topics))


@topic.command(
    epilog=examples(
        "kafkaesque topic alter orders --partitions 12",
        "kafkaesque topic alter orders --set retention.ms=86400000 --unset segment.bytes",
    )
)
@name_argument
@click.option("-p", "--partitions", type=click.IntRange(min=1), help="New number of partitions.")
@click.option("--set", "sets", multiple=True, metavar="NAME=VALUE", help="Change a setting.")
@click.option(
    "--unset", "unsets", multiple=True, metavar="NAME", help="Reset a setting to its default."
)
@client_options()
def alter(
    name: str,
    partitions: int | None,
    sets: tuple[str, ...],
    unsets: tuple[str, ...],
    connection: Connection,
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
        alter_settings(connection, ResourceType.TOPIC, name, settings, unsets)
        changes |= {"set": settings, "unset": list(unsets)}
    if partitions is not None:
        connection.describe_topics([name])
        futures = connection.admin.create_partitions(
            [NewPartitions(name, partitions)], request_timeout=connection.timeout_s
        )
        connection.wait(futures[name], f"give '{name}' {partitions} partitions")
        changes["partitions"] = partitions
    screen.document({"topic": name, **changes}, lambda: screen.line(f"{name}: altered"))


def alter_settings(
    connection: Connection,
    kind: ResourceType,
    name: str,
    sets: dict[str, str],
    unsets: tuple[str, ...],
) -> None:
    """Change settings of a topic or broker in one request (IncrementalAlterConfigs)."""
    set_op, delete_op = AlterConfigOpType.SET, AlterConfigOpType.DELETE
    entries = [ConfigEntry(key, sets[key], incremental_operation=set_op) for key in sets]
    entries += [ConfigEntry(key, None, incremental_operation=delete_op) for key in unsets]
    resource = ConfigResource(kind, name, incremental_configs=entries)
    futures = connection.admin.incremental_alter_configs(
        [resource], request_timeout=connection.timeout_s
    )
    for future in futures.values():
        connection.wait(future, f"change settings of {kind.name.lower()} '{name}'")


@topic.command(
    epilog=examples("kafkaesque topic delete orders", "kafkaesque topic delete a b c --yes")
)
@names_argument
@click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation.")
@client_options()
def delete(names: tuple[str, ...], yes: bool, connection: Connection, screen: Screen) -> None:
    """Delete topics and all their records."""
    connection.describe_topics(names)
    confirm(yes, f"Delete {_listed(names)} with all records?")
    futures = connection.admin.delete_topics(
        list(names), request_timeout=connection.timeout_s, operation_timeout=connection.timeout_s
    )
    outcomes, failures = _collect(connection, futures, "delete", "deleted")
    screen.document({"topics": outcomes}, lambda: _print_outcomes(screen, outcomes))
    _raise_last(failures)


def _listed(names: tuple[str, ...]) -> str:
    kind = "topic" if len(names) == 1 else f"{len(names)} topics:"
    return f"{kind} {', '.join(names)}"


def confirm(yes: bool, question: str) -> None:
    """Ask for confirmation; without a terminal, fail unless `yes` is set."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise CommandFailure(
            "this cannot be undone, and there is no terminal to confirm it", "add --yes to confirm"
        )
    if not click.confirm(question, err=True):
        raise CommandFailure("nothing was changed")


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
    connection: Connection,
    screen: Screen,
) -> None:
    """Delete the oldest records of a topic; the topic stays."""
    if everything == bool(positions):
        raise usage("Use either --before-offset PARTITION:OFFSET or --all.")
    limits = dict(_read_position(text) for text in positions)
    partitions = partitions_of(connection, [name], only=limits)
    wanted = [TopicPartition(name, index, limits.get(index, OFFSET_END)) for _, index in partitions]
    confirm(yes, f"Delete records of '{name}' in {len(wanted)} partition(s)?")
    futures = connection.admin.delete_records(
        wanted, request_timeout=connection.timeout_s, operation_timeout=connection.timeout_s
    )
    for key, future in futures.items():
        connection.wait(future, f"delete records of {name}-{key.partition}")
    bounds = fetch_bounds(connection, partitions)
    rows = [
        {
            "partition": index,
            "earliest": bounds[name, index].earliest,
            "latest": bounds[name, index].end,
        }
        for _, index in partitions
    ]
    columns = [Column("partition", "Partition"), Column("earliest", "Earliest", "count")]
    columns.append(Column("latest", "Latest", "count"))
    screen.document({"topic": name, "partitions": rows}, lambda: screen.table(columns, rows))


def _read_position(text: str) -> tuple[int, int]:
    partition, _, offset = text.partition(":")
    if not (partition.isdecimal() and offset.isdecimal()):
        raise usage(f"'{text}' is not PARTITION:OFFSET, as in 0:1500.")
    return int(partition), int(offset)


def list_rows(connection: Connection, *, internal: bool, details: bool) -> list[dict[str, Any]]:
    """One row per topic, sorted by name; `details` adds the number of records."""
    topics = connection.metadata().topics
    rows: list[dict[str, Any]] = []
    for name in sorted(topics):
        if name.startswith("__") and not internal:
            continue
        partitions = topics[name].partitions
        replicas = max((len(info.replicas) for info in partitions.values()), default=0)
        rows.append({"topic": name, "partitions": len(partitions), "replication_factor": replicas})
    if details:
        wanted = [(row["topic"], index) for row in rows for index in range(row["partitions"])]
        counts: dict[str, int] = {}
        for (name, _), bounds in fetch_bounds(connection, wanted).items():
            counts[name] = counts.get(name, 0) + bounds.end - bounds.earliest
        for row in rows:
            row["records"] = counts[row["topic"]]
    return rows


def describe_rows(connection: Connection, names: Iterable[str]) -> list[dict[str, Any]]:
    """Descriptions of topics: identity, partitions with offsets, settings that are not the default."""
    topics = connection.describe_topics(dict.fromkeys(names))
    # Offsets of a partition without a leader cannot be listed.
    led = [
        (name, partition.id)
        for name, topic in topics.items()
        for partition in topic.partitions
        if _leader_id(partition) is not None
    ]
    bounds = fetch_bounds(connection, led)
    settings = _changed_settings(connection, list(topics))
    described = []
    for name, topic in topics.items():
        rows: list[dict[str, Any]] = []
        for partition in sorted(topic.partitions, key=lambda info: info.id):
            here = bounds.get((name, partition.id))
            rows.append(
                {
                    "partition": partition.id,
                    "leader": _leader_id(partition),
                    "replicas": [node.id for node in partition.replicas],
                    "isr": [node.id for node in partition.isr],
                    "earliest": here.earliest if here else None,
                    "latest": here.end if here else None,
                    "records": here.end - here.earliest if here else None,
                }
            )
        described.append(
            {
                "topic": name,
                # librdkafka writes plain base64, Kafka its URL-safe kind.
                "id": str(topic.topic_id).replace("+", "-").replace("/", "_"),
                "internal": topic.is_internal,
                "partition_count": len(rows),
                "replication_factor": max((len(row["replicas"]) for row in rows), default=0),
                "records": sum(row["records"] or 0 for row in rows),
                "configs": settings[name],
                "partitions": rows,
            }
        )
    return described


def _leader_id(partition: TopicPartitionInfo) -> int | None:
    # The stubs promise a Node; a partition that lost its leader has None, or the id -1.
    leader: Node | None = partition.leader
    return leader.id if leader is not None and leader.id >= 0 else None


def _changed_settings(connection: Connection, names: list[str]) -> dict[str, dict[str, str]]:
    resources = [ConfigResource(ResourceType.TOPIC, name) for name in names]
    futures = connection.admin.describe_configs(resources, request_timeout=connection.timeout_s)
    changed = {}
    for resource, future in futures.items():
        entries = connection.wait(future, f"read the settings of '{resource.name}'")
        changed[resource.name] = {
            entry.name: entry.value
            for entry in sorted(entries.values(), key=lambda entry: entry.name)
            if entry.source == ConfigSource.DYNAMIC_TOPIC_CONFIG.value
        }
    return changed


def show_descriptions(screen: Screen, topics: list[dict[str, Any]]) -> None:
    for number, topic in enumerate(topics):
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
