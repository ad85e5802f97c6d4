"""ElectLeaders, API key 43: return partitions to their preferred leaders (KIP-183).

v1  unclean elections (KIP-460)
v2  flexible

Raft never elects a leader that lacks committed entries, so an unclean election does nothing that
the group would not do by itself: either it is not needed, or no replica is eligible.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import IntEnum

from kafkaesque.broker.cluster.rules.errors import ElectionNotNeeded
from kafkaesque.broker.cluster.rules.tables import Tables
from kafkaesque.broker.server.call import Call
from kafkaesque.broker.server.context import Context
from kafkaesque.broker.server.handler import handler
from kafkaesque.model.errors import (
    ErrorCode,
    InvalidRequest,
    KafkaError,
    LeaderNotAvailable,
    UnknownTopicOrPartition,
)
from kafkaesque.model.ids import PartitionIndex, TopicPartition
from kafkaesque.wire.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
    TopicPartitions,
)

Results = Mapping[TopicPartition, KafkaError | None]


class ElectionType(IntEnum):
    PREFERRED = 0
    UNCLEAN = 1


async def elect_leaders(
    context: Context, request: ElectLeadersRequest, call: Call
) -> ElectLeadersResponse:
    asked, tables = request.topic_partitions, context.cluster.tables
    try:
        election = ElectionType(request.election_type)
    except ValueError:
        return _refused(asked, InvalidRequest(f"Unknown election type {request.election_type}"))
    known = None if asked is None else _known(tables, asked)
    preferred = election is ElectionType.PREFERRED
    try:
        results = await context.cluster.elections.elect(known, preferred=preferred)
    except KafkaError as error:
        return _refused(asked, error)
    rows = _all_rows(tables, results) if asked is None else _rows(tables, asked, results)
    return ElectLeadersResponse(error_code=ErrorCode.NONE, replica_election_results=rows)


def _known(tables: Tables, asked: Sequence[TopicPartitions]) -> list[TopicPartition]:
    """Returns the existing partitions, without duplicates."""
    named = (
        TopicPartition(topic.topic, PartitionIndex(index))
        for topic in asked
        for index in topic.partitions
    )
    return [name for name in dict.fromkeys(named) if _missing(tables, name) is None]


def _missing(tables: Tables, name: TopicPartition) -> KafkaError | None:
    topic = tables.by_name.get(name.topic)
    if topic is None:
        return UnknownTopicOrPartition(f"No such topic as {name.topic}")
    if not 0 <= name.partition < topic.partition_count:
        return UnknownTopicOrPartition(f"No such partition as {name}")
    return None


def _rows(
    tables: Tables, asked: Sequence[TopicPartitions], results: Results
) -> list[ReplicaElectionResult]:
    """Returns a row for each requested partition, in order, duplicates included."""
    rows = []
    for topic in asked:
        names = [TopicPartition(topic.topic, PartitionIndex(index)) for index in topic.partitions]
        found = [
            # A partition that exists but has no result was created in between.
            _missing(tables, name) or results.get(name, LeaderNotAvailable(""))
            for name in names
        ]
        rows.append(_row(topic.topic, list(zip(topic.partitions, found, strict=True))))
    return rows


def _all_rows(tables: Tables, results: Results) -> list[ReplicaElectionResult]:
    """As in Kafka: a row for every topic, without the partitions that already had their leader."""
    found: dict[str, list[tuple[int, KafkaError | None]]] = {name: [] for name in tables.by_name}
    for name, error in results.items():
        if not isinstance(error, ElectionNotNeeded):
            found.setdefault(name.topic, []).append((name.partition, error))
    return [_row(name, partitions) for name, partitions in found.items()]


def _row(topic: str, partitions: Sequence[tuple[int, KafkaError | None]]) -> ReplicaElectionResult:
    return ReplicaElectionResult(
        topic=topic,
        partition_result=[
            PartitionResult(
                partition_id=index,
                error_code=ErrorCode.NONE if error is None else error.code,
                error_message=None if error is None else str(error) or None,
            )
            for index, error in partitions
        ],
    )


def _refused(asked: Sequence[TopicPartitions] | None, error: KafkaError) -> ElectLeadersResponse:
    return ElectLeadersResponse(
        error_code=error.code,
        replica_election_results=[
            _row(topic.topic, [(index, error) for index in topic.partitions])
            for topic in asked or []
        ],
    )


HANDLER = handler(ElectLeadersRequest, versions=(0, 2))(elect_leaders)
