from __future__ import annotations

from uuid import UUID

import pytest
from tests.broker.server.local_broker import LocalBroker, every_version

from kafkaesque.broker.cluster.rules.commands import RegisterBroker
from kafkaesque.model.errors import ErrorCode
from kafkaesque.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)


def move(
    broker: LocalBroker,
    *wanted: tuple[str, int, list[int] | None],
    version: int = 1,
    allow_factor_change: bool = True,
) -> AlterPartitionReassignmentsResponse:
    """Returns one entry for each of `wanted`."""
    request = AlterPartitionReassignmentsRequest(
        allow_replication_factor_change=allow_factor_change,
        topics=[
            ReassignableTopic(
                name=name,
                partitions=[ReassignablePartition(partition_index=index, replicas=replicas)],
            )
            for name, index, replicas in wanted
        ],
    )
    answer = broker.ask(request, version)
    assert isinstance(answer, AlterPartitionReassignmentsResponse)
    return answer


def rows(answer: AlterPartitionReassignmentsResponse) -> list[tuple[str, int, int, str | None]]:
    return [
        (topic.name, row.partition_index, row.error_code, row.error_message)
        for topic in answer.responses
        for row in topic.partitions
    ]


@pytest.mark.parametrize("version", every_version(AlterPartitionReassignmentsRequest))
def test_lone_broker_answers_as_kafka_does(broker: LocalBroker, version: int) -> None:
    """Recorded from Apache Kafka 4.3.1."""
    broker.create("a", 2)
    assignment = "The manual partition assignment includes"
    answer = move(
        broker,
        ("a", 0, [1]),
        ("a", 1, None),
        ("a", 5, [1]),
        ("a", -1, [1]),
        ("nope", 0, [1]),
        ("a", 0, [9]),
        ("a", 0, []),
        ("a", 0, [1, 1]),
        version=version,
    )
    assert (answer.error_code, answer.error_message) == (ErrorCode.NONE, None)
    assert rows(answer) == [
        ("a", 0, ErrorCode.NONE, None),
        ("a", 1, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, None),
        ("a", 5, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "Unable to find partition a:5."),
        ("a", -1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "Unable to find partition a:-1."),
        ("nope", 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "Unable to find a topic named nope."),
        (
            "a",
            0,
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"{assignment} broker 9, but no such broker is registered.",
        ),
        ("a", 0, ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"{assignment} an empty replica list."),
        (
            "a",
            0,
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"{assignment} the broker 1 more than once.",
        ),
    ]
    assert broker.context.cluster.tables.by_name["a"].replicas == ((1,), (1,))


@pytest.mark.parametrize("allowed", [True, False])
def test_answer_repeats_whether_the_factor_may_change(broker: LocalBroker, allowed: bool) -> None:
    broker.create("a", 1)
    answer = move(broker, ("a", 0, [1]), allow_factor_change=allowed)
    assert answer.allow_replication_factor_change is allowed
    assert rows(answer) == [("a", 0, ErrorCode.NONE, None)]


@pytest.mark.parametrize(
    ("allowed", "code"), [(True, ErrorCode.NONE), (False, ErrorCode.INVALID_REPLICATION_FACTOR)]
)
def test_change_of_the_factor_is_refused_where_it_is_not_allowed(
    broker: LocalBroker, allowed: bool, code: int
) -> None:
    broker.create("a", 1)
    tables = broker.context.cluster.tables
    tables.apply(RegisterBroker(7, UUID(int=7), "host", 9092))
    ((_, _, found, message),) = rows(move(broker, ("a", 0, [1, 7]), allow_factor_change=allowed))
    assert found == code
    assert message == (None if allowed else "The replication factor is changed from 1 to 2")
    assert tables.by_name["a"].partitions[0].target == ((1, 7) if allowed else None)


def test_empty_request_is_answered(broker: LocalBroker) -> None:
    assert rows(move(broker)) == []


def test_partitions_of_one_topic_are_answered_together(broker: LocalBroker) -> None:
    broker.create("a", 2)
    request = AlterPartitionReassignmentsRequest(
        topics=[
            ReassignableTopic(
                name="a",
                partitions=[
                    ReassignablePartition(partition_index=1, replicas=[9]),
                    ReassignablePartition(partition_index=0, replicas=[1]),
                ],
            )
        ]
    )
    (topic,) = broker.ask(request, 1).responses
    assert [(row.partition_index, row.error_code) for row in topic.partitions] == [
        (1, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (0, ErrorCode.NONE),
    ]
