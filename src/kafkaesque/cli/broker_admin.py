"""`kafkaesque broker-admin`: brokers, quorum, elect, reassign, reassignments, unregister."""

from __future__ import annotations

from collections import Counter
from typing import Any

import click

from kafkaesque.admin.errors import refusal
from kafkaesque.cli.client import Connection
from kafkaesque.cli.failures import CommandFailure, failure_of, usage
from kafkaesque.cli.options import client_options, complete_topics, examples, read_pair
from kafkaesque.cli.render import Column, Screen
from kafkaesque.cli.topic import confirm
from kafkaesque.client.wire.errors import error_name
from kafkaesque.model.errors import ErrorCode
from kafkaesque.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from kafkaesque.wire.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    PartitionData,
    ReplicaState,
    TopicData,
)
from kafkaesque.wire.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    TopicPartitions,
)
from kafkaesque.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from kafkaesque.wire.messages.unregister_broker import (
    UnregisterBrokerRequest,
    UnregisterBrokerResponse,
)

CONTROLLER_LOG = "__cluster_metadata"

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

PREFERRED, UNCLEAN = 0, 1
"""Types of elections (KIP-460)."""

Outcome = tuple[str, int, int, str | None]
"""Topic, partition, error code, error message."""


@click.group("broker-admin")
def broker_admin() -> None:
    """Show brokers and the controller quorum, elect leaders, reassign partitions."""


@broker_admin.command(
    epilog=examples("kafkaesque broker-admin brokers", "kafkaesque broker-admin brokers --json")
)
@client_options()
def brokers(connection: Connection, screen: Screen) -> None:
    """List the brokers that are up, with their leader and replica counts."""
    rows = broker_rows(connection)
    screen.document({"brokers": rows}, lambda: screen.table(BROKER_COLUMNS, rows))


@broker_admin.command(
    epilog=examples("kafkaesque broker-admin quorum", "kafkaesque broker-admin quorum --json")
)
@client_options()
def quorum(connection: Connection, screen: Screen) -> None:
    """Show the controller quorum: leader, voters, and the lag of each."""
    document = quorum_document(connection)

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
    "--unclean", is_flag=True, help="Allow replicas that are not in sync: may lose records."
)
@client_options()
def elect(
    targets: tuple[str, ...], is_all: bool, unclean: bool, connection: Connection, screen: Screen
) -> None:
    """Elect the preferred leader of partitions: the first replica of each."""
    if bool(targets) == is_all:
        raise usage("List topics or partitions, or use --all.")
    asked = None
    if targets:
        asked = [
            TopicPartitions(topic=name, partitions=indexes)
            for name, indexes in _partitions(connection, targets).items()
        ]
    request = ElectLeadersRequest(
        election_type=UNCLEAN if unclean else PREFERRED,
        topic_partitions=asked,
        timeout_ms=_timeout_ms(connection),
    )
    doing = "elect leaders"
    answer = connection.cluster.call_controller(request, ElectLeadersResponse, doing)
    if answer.error_code and not answer.replica_election_results:
        raise refusal(answer.error_code, None, doing)
    outcomes = [
        (topic.topic, row.partition_id, row.error_code, row.error_message)
        for topic in answer.replica_election_results
        for row in topic.partition_result
    ]
    _report(screen, outcomes, "elected", doing)


def _partitions(connection: Connection, targets: tuple[str, ...]) -> dict[str, list[int]]:
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
        raise usage(f"'{text}' is not TOPIC or TOPIC:PARTITION.")
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
    targets: tuple[str, ...], cancelled: tuple[str, ...], connection: Connection, screen: Screen
) -> None:
    """Move partitions to other brokers. The first broker is the preferred leader.

    Returns when the cluster has started; `reassignments` lists those in progress.
    """
    if not targets and not cancelled:
        raise usage("List what to move, as in orders:0=1,2,3.")
    wanted: dict[tuple[str, int], list[int] | None] = {}
    for text in targets:
        name, brokers_text = read_pair(text, "TOPIC:PARTITION=BROKER,...")
        wanted[_one(name)] = _brokers(brokers_text)
    wanted |= {_one(text): None for text in cancelled}
    topics: dict[str, list[ReassignablePartition]] = {}
    for (topic, index), replicas in wanted.items():
        partition = ReassignablePartition(partition_index=index, replicas=replicas)
        topics.setdefault(topic, []).append(partition)
    request = AlterPartitionReassignmentsRequest(
        timeout_ms=_timeout_ms(connection),
        topics=[ReassignableTopic(name=name, partitions=rows) for name, rows in topics.items()],
    )
    doing = "reassign partitions"
    answer = connection.cluster.call_controller(request, AlterPartitionReassignmentsResponse, doing)
    if answer.error_code:
        raise refusal(answer.error_code, answer.error_message, doing)
    outcomes = [
        (topic.name, row.partition_index, row.error_code, row.error_message)
        for topic in answer.responses
        for row in topic.partitions
    ]
    _report(screen, outcomes, "begun", doing)


def _one(text: str) -> tuple[str, int]:
    topic, index = _target(text)
    if index is None:
        raise usage(f"'{text}' is not TOPIC:PARTITION.")
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
def reassignments(connection: Connection, screen: Screen) -> None:
    """List the reassignments in progress."""
    rows = reassignment_rows(connection)
    screen.document(
        {"reassignments": rows},
        lambda: screen.table(REASSIGNMENT_COLUMNS, rows, "no reassignments in progress"),
    )


@broker_admin.command(epilog=examples("kafkaesque broker-admin unregister 3 --yes"))
@click.argument("broker_id", metavar="ID", type=click.IntRange(min=0))
@click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation.")
@client_options()
def unregister(broker_id: int, yes: bool, connection: Connection, screen: Screen) -> None:
    """Remove a broker that will not return from the cluster."""
    confirm(yes, f"Unregister broker {broker_id}? The cluster loses its replicas.")
    doing = f"unregister broker {broker_id}"
    request = UnregisterBrokerRequest(broker_id=broker_id)
    answer = connection.cluster.call_controller(request, UnregisterBrokerResponse, doing)
    if answer.error_code:
        raise refusal(answer.error_code, answer.error_message, doing)
    screen.document(
        {"broker": broker_id, "result": "unregistered"},
        lambda: screen.line(f"broker {broker_id}: unregistered"),
    )


def _report(screen: Screen, outcomes: list[Outcome], done: str, doing: str) -> None:
    """Print one line per partition and all failures."""
    rows: list[dict[str, Any]] = []
    failures: list[CommandFailure] = []
    for topic, index, code, message in outcomes:
        row: dict[str, Any] = {"topic": topic, "partition": index, "result": done}
        if code == ErrorCode.ELECTION_NOT_NEEDED:
            row["result"] = "as it should be"
        elif code:
            row |= {"result": "failed", "error": message or error_name(code)}
            failures.append(failure_of(refusal(code, message, f"{doing}: {topic}:{index}")))
        rows.append(row)

    def show() -> None:
        for row in rows:
            if row["result"] != "failed":
                screen.line(f"{row['topic']}:{row['partition']}: {row['result']}")

    screen.document({"partitions": rows}, show)
    for failure in failures[:-1]:
        failure.show()
    if failures:
        raise failures[-1]


def _timeout_ms(connection: Connection) -> int:
    return int(connection.timeout_s * 1000)


def broker_rows(connection: Connection) -> list[dict[str, Any]]:
    """One row for each broker that is up."""
    future = connection.admin.describe_cluster(request_timeout=connection.timeout_s)
    described = connection.wait(future, "describe the cluster")
    racks = {node.id: node.rack for node in described.nodes}
    metadata = connection.metadata()
    leads: Counter[int] = Counter()
    replicas: Counter[int] = Counter()
    behind: Counter[int] = Counter()
    for topic in metadata.topics.values():
        for partition in topic.partitions.values():
            leads[partition.leader] += 1
            replicas.update(partition.replicas)
            behind.update(set(partition.replicas) - set(partition.isrs))
    return [
        {
            "id": node.id,
            "host": node.host,
            "port": node.port,
            "rack": racks.get(node.id),
            "controller": node.id == metadata.controller_id,
            "leads": leads[node.id],
            "replicas": replicas[node.id],
            "behind": behind[node.id],
        }
        for node in sorted(metadata.brokers.values(), key=lambda node: node.id)
    ]


def quorum_document(connection: Connection) -> dict[str, Any]:
    doing = "describe the quorum"
    asked = TopicData(topic_name=CONTROLLER_LOG, partitions=[PartitionData(partition_index=0)])
    request = DescribeQuorumRequest(topics=[asked])
    answer = connection.cluster.call_controller(request, DescribeQuorumResponse, doing)
    if answer.error_code:
        raise refusal(answer.error_code, answer.error_message, doing)
    (topic,) = answer.topics
    (found,) = topic.partitions
    if found.error_code:
        raise refusal(found.error_code, found.error_message, doing)
    end = max((voter.log_end_offset for voter in found.current_voters), default=0)
    voters = [_member(voter, found.leader_id, "voter", end) for voter in found.current_voters]
    observers = [_member(one, found.leader_id, "observer", end) for one in found.observers]
    return {
        "leader": found.leader_id,
        "epoch": found.leader_epoch,
        "high_watermark": found.high_watermark,
        "members": [*voters, *observers],
    }


def _member(replica: ReplicaState, leader: int, role: str, end: int) -> dict[str, Any]:
    offset = replica.log_end_offset
    return {
        "id": replica.replica_id,
        "role": "leader" if replica.replica_id == leader else role,
        "end_offset": offset,
        "lag": end - offset if offset >= 0 else None,
        "last_caught_up_ms": replica.last_caught_up_timestamp,
    }


def reassignment_rows(connection: Connection) -> list[dict[str, Any]]:
    doing = "list reassignments"
    request = ListPartitionReassignmentsRequest(timeout_ms=int(connection.timeout_s * 1000))
    answer = connection.cluster.call_controller(request, ListPartitionReassignmentsResponse, doing)
    if answer.error_code:
        raise refusal(answer.error_code, answer.error_message, doing)
    return [
        {
            "topic": topic.name,
            "partition": row.partition_index,
            "replicas": list(row.replicas),
            "adding": list(row.adding_replicas),
            "removing": list(row.removing_replicas),
        }
        for topic in answer.topics
        for row in topic.partitions
    ]
