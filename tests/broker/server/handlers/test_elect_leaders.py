from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping, Sequence
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import pytest
from tests.broker.server.local_broker import LocalBroker, every_version

from kafkaesque.broker.cluster.rules.commands import CreateTopic
from kafkaesque.broker.cluster.rules.errors import (
    ElectionNotNeeded,
    EligibleLeadersNotAvailable,
    PreferredLeaderNotAvailable,
)
from kafkaesque.broker.cluster.rules.tables import Tables
from kafkaesque.broker.server.call import Call
from kafkaesque.broker.server.context import Context
from kafkaesque.broker.server.handlers.elect_leaders import elect_leaders
from kafkaesque.model.errors import ErrorCode, KafkaError, NotController
from kafkaesque.model.ids import PartitionIndex, TopicPartition
from kafkaesque.wire.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    TopicPartitions,
)

NOT_NEEDED = "Leader election not needed for topic partition."

Rows = list[tuple[str, list[tuple[int, int, str | None]]]]


def request(topics: list[tuple[str, list[int]]] | None, election_type: int = 0) -> Any:
    asked = None
    if topics is not None:
        asked = [TopicPartitions(topic=name, partitions=indexes) for name, indexes in topics]
    return ElectLeadersRequest(election_type=election_type, topic_partitions=asked)


def rows(answer: ElectLeadersResponse) -> Rows:
    return [
        (
            row.topic,
            [
                (item.partition_id, item.error_code, item.error_message)
                for item in row.partition_result
            ],
        )
        for row in answer.replica_election_results
    ]


class Elections:
    """Topics a (2 partitions) and b (1), whose elections end as given."""

    def __init__(self, results: Mapping[tuple[str, int], KafkaError | None]) -> None:
        self.results = {
            TopicPartition(topic, PartitionIndex(index)): result
            for (topic, index), result in results.items()
        }
        self.asked: list[tuple[Sequence[TopicPartition] | None, bool]] = []
        self.tables = Tables()
        self.tables.apply(CreateTopic("a", UUID(int=1), ((1, 2), (1, 2))))
        self.tables.apply(CreateTopic("b", UUID(int=2), ((1, 2),)))

    async def elect(
        self, partitions: Sequence[TopicPartition] | None, *, preferred: bool
    ) -> Mapping[TopicPartition, KafkaError | None]:
        self.asked.append((partitions, preferred))
        if ("broken", 0) in self.results:
            raise NotController("elsewhere")
        return self.results

    def answer(self, asked: ElectLeadersRequest) -> ElectLeadersResponse:
        cluster = SimpleNamespace(tables=self.tables, elections=self)
        context = cast(Context, SimpleNamespace(cluster=cluster))
        handled = elect_leaders(context, asked, Call(2, None, ""))
        return asyncio.run(cast(Coroutine[Any, Any, ElectLeadersResponse], handled))


def test_each_partition_has_its_own_result() -> None:
    elections = Elections(
        {("a", 0): None, ("a", 1): PreferredLeaderNotAvailable(), ("b", 0): ElectionNotNeeded()}
    )
    answer = elections.answer(request([("a", [1, 0]), ("b", [0])]))
    assert answer.error_code == ErrorCode.NONE
    assert rows(answer) == [
        (
            "a",
            [
                (
                    1,
                    ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
                    "The preferred leader was not available.",
                ),
                (0, ErrorCode.NONE, None),
            ],
        ),
        ("b", [(0, ErrorCode.ELECTION_NOT_NEEDED, NOT_NEEDED)]),
    ]
    assert elections.asked == [([("a", 1), ("a", 0), ("b", 0)], True)]


def test_election_for_all_partitions_leaves_out_those_that_need_none() -> None:
    elections = Elections(
        {
            ("a", 0): ElectionNotNeeded(),
            ("a", 1): EligibleLeadersNotAvailable(),
            ("b", 0): ElectionNotNeeded(),
        }
    )
    answer = elections.answer(request(None, election_type=1))
    message = "Eligible topic partition leaders are not available."
    assert rows(answer) == [
        ("a", [(1, ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, message)]),
        ("b", []),
    ]
    assert elections.asked == [(None, False)]


def test_unknown_partitions_are_not_elected_and_repeated_ones_only_once() -> None:
    elections = Elections({("a", 0): None})
    answer = elections.answer(request([("a", [0, 7, -1]), ("nope", [0]), ("a", [0])]))
    assert rows(answer) == [
        (
            "a",
            [
                (0, ErrorCode.NONE, None),
                (7, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "No such partition as a-7"),
                (-1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "No such partition as a--1"),
            ],
        ),
        ("nope", [(0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "No such topic as nope")]),
        ("a", [(0, ErrorCode.NONE, None)]),
    ]
    assert elections.asked == [([("a", 0)], True)]


def test_partition_without_an_outcome_has_no_leader_yet() -> None:
    answer = Elections({}).answer(request([("a", [0])]))
    assert rows(answer) == [("a", [(0, ErrorCode.LEADER_NOT_AVAILABLE, None)])]


@pytest.mark.parametrize("topics", [[("a", [0])], None])
def test_unknown_election_type_is_refused(topics: list[tuple[str, list[int]]] | None) -> None:
    answer = Elections({}).answer(request(topics, election_type=7))
    assert answer.error_code == ErrorCode.INVALID_REQUEST
    assert rows(answer) == (
        [("a", [(0, ErrorCode.INVALID_REQUEST, "Unknown election type 7")])] if topics else []
    )


def test_failure_of_the_request_is_reported_for_each_partition() -> None:
    answer = Elections({("broken", 0): None}).answer(request([("a", [0, 1])]))
    assert answer.error_code == ErrorCode.NOT_CONTROLLER
    assert rows(answer) == [
        (
            "a",
            [
                (0, ErrorCode.NOT_CONTROLLER, "elsewhere"),
                (1, ErrorCode.NOT_CONTROLLER, "elsewhere"),
            ],
        )
    ]


@pytest.mark.parametrize("version", every_version(ElectLeadersRequest))
def test_lone_broker_answers_as_kafka_does(broker: LocalBroker, version: int) -> None:
    """Recorded from Apache Kafka 4.3.1."""
    broker.create("a", 2)
    answer = broker.ask(request([("a", [0, 1, 7]), ("nope", [0])]), version)
    assert rows(answer) == [
        (
            "a",
            [
                (0, ErrorCode.ELECTION_NOT_NEEDED, NOT_NEEDED),
                (1, ErrorCode.ELECTION_NOT_NEEDED, NOT_NEEDED),
                (7, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "No such partition as a-7"),
            ],
        ),
        ("nope", [(0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "No such topic as nope")]),
    ]
    assert rows(broker.ask(request(None), version)) == [("a", [])]
    if version > 0:
        assert rows(broker.ask(request([("a", [0])], election_type=1), version)) == [
            ("a", [(0, ErrorCode.ELECTION_NOT_NEEDED, NOT_NEEDED)])
        ]
