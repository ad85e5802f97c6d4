from __future__ import annotations

import pytest
from tests.broker.server.local_broker import LocalBroker, every_version

from kafkaesque.model.errors import ErrorCode
from kafkaesque.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)


def delete(
    broker: LocalBroker, *asked: tuple[str, int, int], version: int = 2
) -> dict[tuple[str, int], tuple[int, int]]:
    topics = [
        DeleteRecordsTopic(
            name=name, partitions=[DeleteRecordsPartition(partition_index=index, offset=offset)]
        )
        for name, index, offset in asked
    ]
    answer = broker.ask(DeleteRecordsRequest(topics=topics, timeout_ms=1000), version)
    rows = [(topic.name, item) for topic in answer.topics for item in topic.partitions]
    found = {
        (name, item.partition_index): (item.error_code, item.low_watermark) for name, item in rows
    }
    assert len(found) == len(rows)
    return found


@pytest.fixture
def topic(broker: LocalBroker) -> LocalBroker:
    broker.create("a", 2)
    broker.append("a", *range(10))
    return broker


@pytest.mark.parametrize("version", every_version(DeleteRecordsRequest))
def test_log_starts_at_the_requested_offset(topic: LocalBroker, version: int) -> None:
    assert delete(topic, ("a", 0, 7), version=version) == {("a", 0): (ErrorCode.NONE, 7)}
    assert topic.partition("a").log_start_offset == 7


def test_start_of_the_log_never_goes_back(topic: LocalBroker) -> None:
    delete(topic, ("a", 0, 7))
    assert delete(topic, ("a", 0, 3)) == {("a", 0): (ErrorCode.NONE, 7)}


def test_minus_one_deletes_all_that_is_committed(topic: LocalBroker) -> None:
    assert delete(topic, ("a", 0, -1)) == {("a", 0): (ErrorCode.NONE, 10)}


@pytest.mark.parametrize("offset", [11, -2])
def test_offset_outside_the_log_is_refused_and_deletes_nothing(
    topic: LocalBroker, offset: int
) -> None:
    assert delete(topic, ("a", 0, offset)) == {("a", 0): (ErrorCode.OFFSET_OUT_OF_RANGE, -1)}
    assert topic.partition("a").log_start_offset == 0


def test_unknown_topic_or_partition_does_not_hinder_the_others(topic: LocalBroker) -> None:
    assert delete(topic, ("nope", 0, 1), ("a", 9, 1), ("a", 0, 1)) == {
        ("nope", 0): (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1),
        ("a", 9): (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1),
        ("a", 0): (ErrorCode.NONE, 1),
    }


def test_partition_named_twice_is_answered_once(topic: LocalBroker) -> None:
    assert delete(topic, ("a", 0, 2), ("a", 0, 5)) == {("a", 0): (ErrorCode.NONE, 5)}


@pytest.mark.parametrize(
    ("policy", "code"),
    [
        ("compact", ErrorCode.POLICY_VIOLATION),
        ("compact,delete", ErrorCode.NONE),
        ("delete", ErrorCode.NONE),
        ("", ErrorCode.NONE),
    ],
)
def test_topic_that_only_compacts_keeps_its_records(
    broker: LocalBroker, policy: str, code: int
) -> None:
    broker.create("a", cleanup_policy=policy)
    broker.append("a", 1, 2)
    assert delete(broker, ("a", 0, 1)) == {("a", 0): (code, 1 if code == ErrorCode.NONE else -1)}


def test_records_of_an_internal_topic_stay(broker: LocalBroker) -> None:
    broker.create("__consumer_offsets")
    assert delete(broker, ("__consumer_offsets", 0, 0)) == {
        ("__consumer_offsets", 0): (ErrorCode.INVALID_TOPIC_EXCEPTION, -1)
    }
