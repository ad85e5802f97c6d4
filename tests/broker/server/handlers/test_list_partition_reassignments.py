from __future__ import annotations

import pytest
from tests.broker.server.local_broker import LocalBroker

from kafkaesque.broker.cluster.rules.commands import Reassignment, SetReassignments
from kafkaesque.model.errors import ErrorCode
from kafkaesque.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)

Row = tuple[str, int, list[int], list[int], list[int]]


def listed(broker: LocalBroker, topics: dict[str, list[int]] | None) -> list[Row]:
    asked = None
    if topics is not None:
        asked = [
            ListPartitionReassignmentsTopics(name=name, partition_indexes=indexes)
            for name, indexes in topics.items()
        ]
    answer = broker.ask(ListPartitionReassignmentsRequest(topics=asked), 0)
    assert (answer.error_code, answer.error_message) == (ErrorCode.NONE, None)
    return [
        (
            topic.name,
            row.partition_index,
            row.replicas,
            row.adding_replicas,
            row.removing_replicas,
        )
        for topic in answer.topics
        for row in topic.partitions
    ]


@pytest.mark.parametrize("topics", [None, {}, {"a": [0, 9], "nope": [0]}])
def test_nothing_moves_on_a_lone_broker(
    broker: LocalBroker, topics: dict[str, list[int]] | None
) -> None:
    """Recorded from Apache Kafka 4.3.1."""
    broker.create("a", 2)
    assert listed(broker, topics) == []


def test_reassignment_is_listed_with_added_and_removed_replicas(broker: LocalBroker) -> None:
    broker.create("a", 3)
    broker.create("b", 1)
    tables = broker.context.cluster.tables
    moves = [(tables.by_name["a"].topic_id, 1, (3, 2)), (tables.by_name["b"].topic_id, 0, (1, 2))]
    tables.apply(SetReassignments(tuple(Reassignment(*move) for move in moves)))
    first: Row = ("a", 1, [3, 2, 1], [2, 3], [1])
    assert listed(broker, None) == [first, ("b", 0, [1, 2], [2], [])]
    assert listed(broker, {"a": [0, 1, 2]}) == [first]
