from __future__ import annotations

import pytest
from tests.broker.server.conftest import MakeBroker
from tests.broker.server.local_broker import LocalBroker, every_version

from kafkaesque.model.errors import ErrorCode
from kafkaesque.wire.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)


def grow(
    broker: LocalBroker,
    *wanted: tuple[str, int],
    assignments: list[list[int]] | None = None,
    validate_only: bool = False,
    version: int = 3,
) -> list[tuple[str, int, str | None]]:
    topics = [
        CreatePartitionsTopic(
            name=name,
            count=count,
            assignments=None
            if assignments is None
            else [CreatePartitionsAssignment(broker_ids=nodes) for nodes in assignments],
        )
        for name, count in wanted
    ]
    request = CreatePartitionsRequest(topics=topics, timeout_ms=1000, validate_only=validate_only)
    results = broker.ask(request, version).results
    return [(row.name, row.error_code, row.error_message) for row in results]


@pytest.mark.parametrize("version", every_version(CreatePartitionsRequest))
def test_grown_topic_serves_its_new_partitions_and_keeps_the_old(
    broker: LocalBroker, version: int
) -> None:
    broker.create("a", 1)
    broker.append("a", 1, 2)
    assert grow(broker, ("a", 3), version=version) == [("a", ErrorCode.NONE, None)]
    assert [broker.partition("a", index).log_end_offset for index in range(3)] == [2, 0, 0]


def test_validation_grows_nothing(broker: LocalBroker) -> None:
    broker.create("a", 1)
    assert grow(broker, ("a", 3), validate_only=True) == [("a", ErrorCode.NONE, None)]
    assert len(broker.context.partitions.of_topic("a")) == 1


def test_refusals_have_kafkas_codes_and_do_not_hinder_the_others(broker: LocalBroker) -> None:
    broker.create("a", 2)
    broker.create("b", 2)
    broker.create("c", 2)
    assert grow(broker, ("a", 2), ("nope", 2), ("b", 1), ("c", 3)) == [
        ("a", ErrorCode.INVALID_PARTITIONS, "Topic already has 2 partition(s)."),
        ("nope", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, None),
        (
            "b",
            ErrorCode.INVALID_PARTITIONS,
            "The topic b currently has 2 partition(s); 1 would not be an increase.",
        ),
        ("c", ErrorCode.NONE, None),
    ]


def test_name_that_comes_twice_is_answered_once_and_does_not_grow(broker: LocalBroker) -> None:
    broker.create("a")
    assert grow(broker, ("a", 2), ("a", 3)) == [
        ("a", ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
    ]
    assert len(broker.context.partitions.of_topic("a")) == 1


@pytest.mark.parametrize(
    ("assignments", "code"),
    [
        ([[1], [1]], ErrorCode.NONE),
        ([[1]], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ([], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ([[1], [9]], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    ],
)
def test_manual_assignment_is_checked(
    broker: LocalBroker, assignments: list[list[int]], code: int
) -> None:
    broker.create("a", 1)
    ((_, found, _),) = grow(broker, ("a", 3), assignments=assignments)
    assert found == code
    assert len(broker.context.partitions.of_topic("a")) == (3 if code == ErrorCode.NONE else 1)


def test_limit_of_partitions_holds_over_all_topics_of_a_request(make_broker: MakeBroker) -> None:
    broker = make_broker(max_partitions="4")
    broker.create("a", 1)
    broker.create("b", 1)
    results = grow(broker, ("a", 3), ("b", 3))
    assert [code for _, code, _ in results] == [ErrorCode.NONE, ErrorCode.POLICY_VIOLATION]
    assert len(broker.context.partitions) == 4


def test_internal_topic_does_not_grow(broker: LocalBroker) -> None:
    broker.create("__consumer_offsets", 1)
    ((_, code, _),) = grow(broker, ("__consumer_offsets", 2))
    assert code == ErrorCode.POLICY_VIOLATION
