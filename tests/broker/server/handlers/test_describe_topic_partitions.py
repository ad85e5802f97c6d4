from __future__ import annotations

from typing import Any

import pytest
from tests.broker.server.local_broker import LocalBroker

from kafkaesque.broker.server.handlers import describe_topic_partitions as subject
from kafkaesque.model.errors import ErrorCode
from kafkaesque.wire.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    TopicRequest,
)


def ask(
    broker: LocalBroker, *names: str, limit: int = 2000, cursor: tuple[str, int] | None = None
) -> Any:
    request = DescribeTopicPartitionsRequest(
        topics=[TopicRequest(name=name) for name in names],
        response_partition_limit=limit,
        cursor=None if cursor is None else Cursor(topic_name=cursor[0], partition_index=cursor[1]),
    )
    return broker.ask(request, 0)


def page(answer: Any) -> tuple[dict[str, list[int]], tuple[str, int] | None]:
    rows = {row.name: [item.partition_index for item in row.partitions] for row in answer.topics}
    assert len(rows) == len(answer.topics)
    cursor = answer.next_cursor
    return rows, None if cursor is None else (cursor.topic_name, cursor.partition_index)


@pytest.fixture
def topics(broker: LocalBroker) -> LocalBroker:
    """Topics b with 3 partitions and a with 2."""
    broker.create("b", 3)
    broker.create("a", 2)
    return broker


def test_topic_is_described_with_all_fields_that_clients_read(topics: LocalBroker) -> None:
    (row,) = ask(topics, "a").topics
    known = topics.context.cluster.tables.by_name["a"]
    assert (row.error_code, row.name, row.topic_id) == (ErrorCode.NONE, "a", known.topic_id)
    assert (row.is_internal, row.topic_authorized_operations) == (False, 3576)
    for partition in row.partitions:
        assert (partition.error_code, partition.leader_id) == (ErrorCode.NONE, 1)
        assert partition.leader_epoch == topics.partition("a").leader_epoch
        assert (partition.replica_nodes, partition.isr_nodes) == ([1], [1])
        assert partition.eligible_leader_replicas == partition.last_known_elr == []
        assert partition.offline_replicas == []


def test_topics_come_sorted_and_once(topics: LocalBroker) -> None:
    assert page(ask(topics, "b", "a", "b")) == ({"a": [0, 1], "b": [0, 1, 2]}, None)
    assert page(ask(topics)) == ({"a": [0, 1], "b": [0, 1, 2]}, None)


@pytest.mark.parametrize(
    ("limit", "rows", "cursor"),
    [
        (1, {"a": [0]}, ("a", 1)),
        (0, {"a": [0]}, ("a", 1)),
        (-1, {"a": [0]}, ("a", 1)),
        (2, {"a": [0, 1]}, ("b", 0)),
        (3, {"a": [0, 1], "b": [0]}, ("b", 1)),
        (5, {"a": [0, 1], "b": [0, 1, 2]}, None),
    ],
)
def test_page_ends_at_the_limit_and_says_where_it_ended(
    topics: LocalBroker, limit: int, rows: dict[str, list[int]], cursor: tuple[str, int] | None
) -> None:
    assert page(ask(topics, limit=limit)) == (rows, cursor)


@pytest.mark.parametrize("limit", [1, 2, 3, 4, 5, 6])
def test_pages_together_contain_all_partitions(topics: LocalBroker, limit: int) -> None:
    seen: list[tuple[str, int]] = []
    cursor = None
    while True:
        rows, cursor = page(ask(topics, limit=limit, cursor=cursor))
        seen += [(name, index) for name, indexes in rows.items() for index in indexes]
        if cursor is None:
            break
    assert seen == [("a", 0), ("a", 1), ("b", 0), ("b", 1), ("b", 2)]


def test_client_cannot_ask_for_more_than_the_brokers_own_limit(
    topics: LocalBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subject, "PARTITIONS_MAX", 2)
    assert page(ask(topics)) == ({"a": [0, 1]}, ("b", 0))


def test_cursor_after_the_last_partition_has_an_empty_row(topics: LocalBroker) -> None:
    assert page(ask(topics, cursor=("a", 7))) == ({"a": [], "b": [0, 1, 2]}, None)


def test_cursor_at_a_topic_deleted_meanwhile_continues_with_the_next_topic(
    topics: LocalBroker,
) -> None:
    assert page(ask(topics, cursor=("aa", 1))) == ({"b": [0, 1, 2]}, None)


@pytest.mark.parametrize("cursor", [("a", -1), ("c", 0)])
def test_cursor_that_cannot_be_refuses_every_topic(
    topics: LocalBroker, cursor: tuple[str, int]
) -> None:
    answer = ask(topics, "a", "b", cursor=cursor)
    assert [(row.name, row.error_code) for row in answer.topics] == [
        ("a", ErrorCode.INVALID_REQUEST),
        ("b", ErrorCode.INVALID_REQUEST),
    ]
    assert {row.topic_authorized_operations for row in answer.topics} == {-(2**31)}


def test_unknown_and_illegal_names_have_rows_with_errors(topics: LocalBroker) -> None:
    answer = ask(topics, "nope", "bad name", "a")
    assert [(row.name, row.error_code) for row in answer.topics] == [
        ("a", ErrorCode.NONE),
        ("bad name", ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("nope", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]
