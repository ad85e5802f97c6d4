from __future__ import annotations

from uuid import UUID, uuid4

import pytest
from tests.broker.server.conftest import MakeBroker
from tests.broker.server.local_broker import LocalBroker, every_version

from kafkaesque.model.errors import ErrorCode
from kafkaesque.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from kafkaesque.wire.table import NO_UUID

Row = tuple[str | None, int, str | None]


def delete(
    broker: LocalBroker, *handles: str | UUID | tuple[str | None, UUID], version: int = 6
) -> list[Row]:
    pairs = [
        handle
        if isinstance(handle, tuple)
        else (handle, NO_UUID)
        if isinstance(handle, str)
        else (None, handle)
        for handle in handles
    ]
    request = DeleteTopicsRequest(
        topics=[DeleteTopicState(name=name, topic_id=topic_id) for name, topic_id in pairs],
        topic_names=[name for name, _ in pairs if name is not None],
        timeout_ms=1000,
    )
    answer = broker.ask(request, version)
    return [(row.name, row.error_code, row.error_message) for row in answer.responses]


def topics(broker: LocalBroker) -> list[str]:
    return list(broker.context.cluster.tables.by_name)


def topic_id(broker: LocalBroker, name: str) -> UUID:
    return broker.context.cluster.tables.by_name[name].topic_id


@pytest.mark.parametrize("version", every_version(DeleteTopicsRequest))
def test_deleted_topic_and_its_partitions_are_gone(broker: LocalBroker, version: int) -> None:
    broker.create("a", 2)
    broker.create("b")
    cluster = broker.context.cluster
    groups = [partition.group_id for partition in cluster.tables.by_name["a"].partitions]
    assert all(cluster.leaders.get(group) is not None for group in groups)
    assert delete(broker, "a", version=version) == [("a", ErrorCode.NONE, None)]
    assert topics(broker) == ["b"]
    assert len(broker.context.partitions) == 1
    assert all(cluster.leaders.get(group) is None for group in groups)


def test_topic_is_deleted_by_its_id_and_answered_with_both_handles(broker: LocalBroker) -> None:
    broker.create("a")
    doomed = topic_id(broker, "a")
    request = DeleteTopicsRequest(
        topics=[DeleteTopicState(name=None, topic_id=doomed)], timeout_ms=1000
    )
    (row,) = broker.ask(request, 6).responses
    assert (row.name, row.topic_id, row.error_code) == ("a", doomed, ErrorCode.NONE)
    assert topics(broker) == []


def test_unknown_handles_do_not_hinder_the_others(broker: LocalBroker) -> None:
    broker.create("a")
    assert delete(broker, "nope", "bad name", uuid4(), "a") == [
        (
            "nope",
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            "This server does not host this topic-partition.",
        ),
        (
            "bad name",
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            "This server does not host this topic-partition.",
        ),
        (None, ErrorCode.UNKNOWN_TOPIC_ID, "This server does not host this topic ID."),
        ("a", ErrorCode.NONE, None),
    ]


def test_handle_that_is_neither_or_both_is_refused(broker: LocalBroker) -> None:
    broker.create("a")
    assert delete(broker, (None, NO_UUID), ("a", topic_id(broker, "a"))) == [
        (None, ErrorCode.INVALID_REQUEST, "Neither topic name nor id were specified."),
        ("a", ErrorCode.INVALID_REQUEST, "You may not specify both topic name and topic id."),
    ]
    assert topics(broker) == ["a"]


@pytest.mark.parametrize("version", every_version(DeleteTopicsRequest))
def test_name_that_comes_twice_is_answered_once_and_the_topic_stays(
    broker: LocalBroker, version: int
) -> None:
    broker.create("a")
    ((name, code, _),) = delete(broker, "a", "a", version=version)
    assert (name, code) == ("a", ErrorCode.INVALID_REQUEST)
    assert topics(broker) == ["a"]


def test_id_that_comes_twice_is_answered_once_and_the_topic_stays(broker: LocalBroker) -> None:
    broker.create("a")
    doomed = topic_id(broker, "a")
    assert delete(broker, doomed, doomed) == [
        (None, ErrorCode.INVALID_REQUEST, "Duplicate topic id.")
    ]
    assert topics(broker) == ["a"]


def test_topic_named_by_both_its_handles_is_answered_once_and_stays(broker: LocalBroker) -> None:
    broker.create("a")
    assert delete(broker, "a", topic_id(broker, "a")) == [
        (
            "a",
            ErrorCode.INVALID_REQUEST,
            "The provided topic name maps to an ID that was already supplied.",
        )
    ]
    assert topics(broker) == ["a"]


def test_internal_topic_is_not_deleted(broker: LocalBroker) -> None:
    broker.create("__consumer_offsets")
    ((_, code, message),) = delete(broker, "__consumer_offsets")
    assert code == ErrorCode.POLICY_VIOLATION
    assert message is not None
    assert topics(broker) == ["__consumer_offsets"]


@pytest.mark.parametrize(
    ("version", "code"),
    [
        (1, ErrorCode.INVALID_REQUEST),
        (2, ErrorCode.INVALID_REQUEST),
        (3, ErrorCode.TOPIC_DELETION_DISABLED),
        (6, ErrorCode.TOPIC_DELETION_DISABLED),
    ],
)
def test_nothing_is_deleted_where_deletion_is_disabled(
    make_broker: MakeBroker, version: int, code: int
) -> None:
    broker = make_broker(delete_topic_enable="false")
    broker.create("a")
    ((name, found, _),) = delete(broker, "a", version=version)
    assert (name, found) == ("a", code)
    assert topics(broker) == ["a"]


def test_name_of_a_deleted_topic_is_free_again_and_its_log_is_empty(broker: LocalBroker) -> None:
    broker.create("a")
    broker.append("a", 1, 2, 3)
    delete(broker, "a")
    broker.create("a")
    assert broker.partition("a").log_end_offset == 0
