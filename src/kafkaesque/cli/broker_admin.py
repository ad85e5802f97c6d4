"""`kafkaesque broker-admin`: brokers, quorum, elect, reassign, reassignments, unregister."""

from __future__ import annotations

import click

from kafkaesque.admin import brokers as admin
from kafkaesque.admin.connection import ClusterConnection
from kafkaesque.cli.failures import raise_failures, usage
from kafkaesque.cli.options import client_options, complete_topics, confirm, examples, read_pair
from kafkaesque.cli.render import Column, Screen

BROKER_COLUMNS = [
    Column("id", "Id", style="bold"),
    Column("host", "Host"),
    Column("port", "Port"),
    Column("rack", "Rack"),
    Column("controller", "Controller"),
    Column("leads", "Leads", "count"),
    Column("replicas", "Replicas", "count"),
    Column("behind", "Not in sync", "count"),
]
QUORUM_COLUMNS = [
    Column("id", "Id", style="bold"),
    Column("role", "Role"),
    Column("end_offset", "End offset", "count"),
    Column("lag", "Lag", "count"),
]
REASSIGNMENT_COLUMNS = [
    Column("topic", "Topic", style="bold"),
    Column("partition", "Partition", "count"),
    Column("replicas", "Replicas"),
    Column("adding", "Adding"),
    Column("removing", "Removing"),
]


@click.group("broker-admin")
def broker_admin() -> None:
    """Show brokers and the controller quorum, elect leaders, reassign partitions."""


@broker_admin.command(
    epilog=examples("kafkaesque broker-admin brokers", "kafkaesque broker-admin brokers --json")
)
@client_options()
def brokers(connection: ClusterConnection, screen: Screen) -> None:
    """List the brokers that are up, with their leader and replica counts."""
    rows = admin.list_brokers(connection)
    screen.document({"brokers": rows}, lambda: screen.table(BROKER_COLUMNS, rows))


@broker_admin.command(
    epilog=examples("kafkaesque broker-admin quorum", "kafkaesque broker-admin quorum --json")
)
@client_options()
def quorum(connection: ClusterConnection, screen: Screen) -> None:
    """Show the controller quorum: leader, voters, and the lag of each."""
    document = admin.describe_quorum(connection.cluster)

    def show() -> None:
        names = {"leader": "Leader", "epoch": "Epoch", "high_watermark": "High watermark"}
        screen.fields([(title, document[key]) for key, title in names.items()])
        screen.line()
        screen.table(QUORUM_COLUMNS, document["members"])

    screen.document(document, show)


@broker_admin.command(
    epilog=examples(
        "kafkaesque broker-admin elect --all",
        "kafkaesque broker-admin elect orders payments:0",
    )
)
@click.argument("targets", metavar="[TOPIC[:PARTITION]...]", nargs=-1)
@click.option("--all", "is_all", is_flag=True, help="All partitions of all topics.")
@click.option(
    "--unclean",
    is_flag=True,
    help="Also elect replicas that are not in sync, which may lose records.",
)
@client_options()
def elect(
    targets: tuple[str, ...],
    is_all: bool,
    unclean: bool,
    connection: ClusterConnection,
    screen: Screen,
) -> None:
    """Elect the preferred leader of partitions: the first replica of each."""
    if bool(targets) == is_all:
        raise usage("List topics or partitions, or use --all.")
    wanted = None if is_all else _partitions(connection, targets)
    outcomes = admin.elect_leaders(connection.cluster, wanted, unclean=unclean)
    _show_outcomes(screen, outcomes)


def _partitions(connection: ClusterConnection, targets: tuple[str, ...]) -> dict[str, list[int]]:
    """Partitions by topic; a topic without a partition means all of its partitions."""
    named = [_target(text) for text in targets]
    described = connection.describe_topics({topic for topic, _ in named})
    found: dict[str, list[int]] = {}
    for topic, index in named:
        every = [partition.id for partition in described[topic].partitions]
        found.setdefault(topic, []).extend(every if index is None else [index])
    return found


def _target(text: str) -> tuple[str, int | None]:
    topic, colon, index = text.partition(":")
    if not topic or (colon and not index.isdecimal()):
        raise usage(f"'{text}' is not TOPIC or TOPIC:PARTITION, as in orders or orders:0.")
    return topic, int(index) if colon else None


@broker_admin.command(
    epilog=examples(
        "kafkaesque broker-admin reassign orders:0=1,2,3 orders:1=2,3,1",
        "kafkaesque broker-admin reassign --cancel orders:0",
        "kafkaesque broker-admin reassignments",
    )
)
@click.argument(
    "targets", metavar="TOPIC:PARTITION=BROKER,...", nargs=-1, shell_complete=complete_topics
)
@click.option("--cancel", "cancelled", multiple=True, metavar="TOPIC:PARTITION",
              help="Cancel a reassignment in progress; may be repeated.")  # fmt: skip
@client_options()
def reassign(
    targets: tuple[str, ...],
    cancelled: tuple[str, ...],
    connection: ClusterConnection,
    screen: Screen,
) -> None:
    """Move partitions to other brokers. The first broker is the preferred leader.

    Returns when the moves have begun; `reassignments` lists those in progress.
    """
    if not targets and not cancelled:
        raise usage("List what to move, as in orders:0=1,2,3.")
    wanted: dict[tuple[str, int], list[int] | None] = {}
    for text in targets:
        name, brokers_text = read_pair(text, "TOPIC:PARTITION=BROKER,...")
        wanted[_one(name)] = _brokers(brokers_text)
    wanted |= {_one(text): None for text in cancelled}
    _show_outcomes(screen, admin.reassign_partitions(connection.cluster, wanted))


def _one(text: str) -> tuple[str, int]:
    topic, index = _target(text)
    if index is None:
        raise usage(f"'{text}' is not TOPIC:PARTITION, as in orders:0.")
    return topic, index


def _brokers(text: str) -> list[int]:
    numbers = text.split(",")
    if not all(number.strip().isdecimal() for number in numbers):
        raise usage(f"'{text}' is not a list of broker ids: write 1,2,3.")
    return [int(number) for number in numbers]


@broker_admin.command(
    epilog=examples(
        "kafkaesque broker-admin reassignments", "kafkaesque broker-admin reassignments --json"
    )
)
@client_options()
def reassignments(connection: ClusterConnection, screen: Screen) -> None:
    """List the reassignments in progress."""
    rows = admin.list_reassignments(connection.cluster)
    screen.document(
        {"reassignments": rows},
        lambda: screen.table(REASSIGNMENT_COLUMNS, rows, "no reassignments in progress"),
    )


@broker_admin.command(epilog=examples("kafkaesque broker-admin unregister 3 --yes"))
@click.argument("broker_id", metavar="ID", type=click.IntRange(min=0))
@click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation.")
@client_options()
def unregister(broker_id: int, yes: bool, connection: ClusterConnection, screen: Screen) -> None:
    """Remove a broker from the cluster for good."""
    confirm(yes, f"Unregister broker {broker_id}? The cluster loses its replicas.")
    admin.unregister_broker(connection.cluster, broker_id)
    screen.document(
        {"broker": broker_id, "result": "unregistered"},
        lambda: screen.line(f"broker {broker_id}: unregistered"),
    )


def _show_outcomes(screen: Screen, outcomes: list[admin.PartitionOutcome]) -> None:
    """Print one line per partition; raise the failures."""

    def show() -> None:
        for outcome in outcomes:
            if outcome.error is None:
                screen.line(f"{outcome.topic}:{outcome.partition}: {outcome.result}")

    screen.document({"partitions": [outcome.row() for outcome in outcomes]}, show)
    raise_failures([outcome.error for outcome in outcomes if outcome.error is not None])
