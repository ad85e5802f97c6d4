from __future__ import annotations

from typing import Any

import pytest
from tests.broker.server.conftest import MakeBroker
from tests.broker.server.local_broker import LocalBroker, every_version

from kafkaesque.model.errors import ErrorCode
from kafkaesque.model.settings import TOPIC_SETTINGS
from kafkaesque.wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from kafkaesque.wire.table import NO_UUID


def wanted(
    name: str,
    num_partitions: int = -1,
    replication_factor: int = -1,
    assignments: list[tuple[int, list[int]]] | None = None,
    configs: list[tuple[str, str | None]] | None = None,
) -> CreatableTopic:
    return CreatableTopic(
        name=name,
        num_partitions=num_partitions,
        replication_factor=replication_factor,
        assignments=[
            CreatableReplicaAssignment(partition_index=index, broker_ids=nodes)
            for index, nodes in assignments or ()
        ],
        configs=[CreatableTopicConfig(name=key, value=value) for key, value in configs or ()],
    )


def create(
    broker: LocalBroker, *topics: CreatableTopic, version: int = 7, validate_only: bool = False
) -> Any:
    request = CreateTopicsRequest(topics=list(topics), validate_only=validate_only)
    return broker.ask(request, version).topics


@pytest.mark.parametrize("version", every_version(CreateTopicsRequest))
def test_created_topic_is_ready_when_the_request_is_answered(
    broker: LocalBroker, version: int
) -> None:
    (result,) = create(broker, wanted("a", 3, 1), version=version)
    assert (result.name, result.error_code, result.error_message) == ("a", ErrorCode.NONE, None)
    assert broker.partition("a", 2).log_end_offset == 0
    topic = broker.context.cluster.tables.by_name["a"]
    assert result.topic_id == (topic.topic_id if version >= 7 else NO_UUID)
    assert result.num_partitions == (3 if version >= 5 else -1)
    assert result.replication_factor == (1 if version >= 5 else -1)


@pytest.mark.parametrize("version", every_version(CreateTopicsRequest))
def test_minus_one_takes_the_brokers_defaults_in_every_version(
    make_broker: MakeBroker, version: int
) -> None:
    broker = make_broker(num_partitions="4")
    create(broker, wanted("a"), version=version)
    assert len(broker.context.partitions.of_topic("a")) == 4


def test_answer_lists_every_setting_with_its_source(broker: LocalBroker) -> None:
    (result,) = create(broker, wanted("a", configs=[("retention.ms", "1000")]))
    configs = {item.name: (item.value, item.config_source) for item in result.configs}
    assert list(configs) == sorted(TOPIC_SETTINGS)
    assert configs["retention.ms"] == ("1000", 1)
    assert configs["cleanup.policy"] == ("delete", 5)
    assert not any(item.read_only or item.is_sensitive for item in result.configs)
    assert broker.partition("a").config.retention_ms == 1000


def test_validation_answers_as_creation_does_and_creates_nothing(broker: LocalBroker) -> None:
    (result,) = create(broker, wanted("a", 2), validate_only=True)
    assert (result.error_code, result.num_partitions) == (ErrorCode.NONE, 2)
    assert result.topic_id != NO_UUID
    assert result.configs
    assert broker.context.cluster.tables.by_name == {}


@pytest.mark.parametrize("validate_only", [True, False])
def test_existing_topic_is_refused(broker: LocalBroker, validate_only: bool) -> None:
    broker.create("a")
    (result,) = create(broker, wanted("a"), validate_only=validate_only)
    assert (result.error_code, result.error_message) == (
        ErrorCode.TOPIC_ALREADY_EXISTS,
        "Topic 'a' already exists.",
    )
    assert (result.num_partitions, result.replication_factor, result.configs) == (-1, -1, [])
    assert result.topic_id == NO_UUID


def test_name_that_comes_twice_is_answered_once_and_not_created(broker: LocalBroker) -> None:
    results = create(broker, wanted("a"), wanted("b"), wanted("a"))
    assert [(row.name, row.error_code, row.error_message) for row in results] == [
        ("a", ErrorCode.INVALID_REQUEST, "Duplicate topic name."),
        ("b", ErrorCode.NONE, None),
    ]
    assert list(broker.context.cluster.tables.by_name) == ["b"]


def test_bad_topic_does_not_hinder_the_others(broker: LocalBroker) -> None:
    results = create(broker, wanted("bad name"), wanted("a"), wanted("b", 0), wanted("c"))
    assert [row.error_code for row in results] == [
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        ErrorCode.NONE,
        ErrorCode.INVALID_PARTITIONS,
        ErrorCode.NONE,
    ]
    assert list(broker.context.cluster.tables.by_name) == ["a", "c"]


@pytest.mark.parametrize(
    ("topic", "code", "message"),
    [
        (wanted("a", 1, 2), ErrorCode.INVALID_REPLICATION_FACTOR, None),
        (
            wanted("a", configs=[("nope", "1")]),
            ErrorCode.INVALID_CONFIG,
            "Unknown topic config name: nope",
        ),
        (
            wanted("a", configs=[("retention.ms", None)]),
            ErrorCode.INVALID_CONFIG,
            "Null value not supported for topic configs: retention.ms",
        ),
        (wanted("a", assignments=[(0, [99])]), ErrorCode.INVALID_REPLICA_ASSIGNMENT, None),
        (
            wanted("a", assignments=[(0, [1]), (0, [1])]),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "Found multiple manual partition assignments for partition 0",
        ),
        (wanted("__cluster_metadata"), ErrorCode.INVALID_REQUEST, None),
    ],
)
def test_refusal_has_kafkas_code_and_words(
    broker: LocalBroker, topic: CreatableTopic, code: int, message: str | None
) -> None:
    (result,) = create(broker, topic)
    assert result.error_code == code
    assert result.error_message
    assert message is None or result.error_message == message
    assert broker.context.cluster.tables.by_name == {}


def test_setting_that_comes_twice_has_its_last_value(broker: LocalBroker) -> None:
    create(broker, wanted("a", configs=[("retention.ms", "1"), ("retention.ms", "2")]))
    assert broker.partition("a").config.retention_ms == 2


def test_manual_assignment_to_this_broker_is_taken(broker: LocalBroker) -> None:
    (result,) = create(broker, wanted("a", assignments=[(0, [1]), (1, [1])]))
    assert (result.error_code, result.num_partitions, result.replication_factor) == (
        ErrorCode.NONE,
        2,
        1,
    )


def test_two_clients_that_create_the_same_topic_at_once_have_one_winner(
    broker: LocalBroker,
) -> None:
    request = CreateTopicsRequest(topics=[wanted("a", 2)])
    answers = broker.ask_together(request, request, version=7)
    assert sorted(answer.topics[0].error_code for answer in answers) == [
        ErrorCode.NONE,
        ErrorCode.TOPIC_ALREADY_EXISTS,
    ]


def test_created_topics_are_there_after_a_restart(make_broker: MakeBroker) -> None:
    with make_broker() as broker:
        create(broker, wanted("a", 2, configs=[("retention.ms", "5")]), wanted("b", 1))
    broker = make_broker()
    assert broker.partition("a", 1).config.retention_ms == 5
    assert len(broker.context.partitions) == 3
