"""The topics, groups and records of one test, against a real broker."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from kafkaesque.model.errors import KafkaError
from kafkaesque.testing import Broker, BrokerFailed, Namespace
from kafkaesque.testing.client import SharedClient


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


@pytest.fixture(scope="module")
def client(broker: Broker) -> Iterator[SharedClient]:
    with SharedClient(broker.bootstrap_servers) as client:
        yield client


@pytest.fixture
def namespace(broker: Broker, client: SharedClient) -> Namespace:
    return Namespace(broker, client)


def test_names_are_unique_and_contain_the_test_name(broker: Broker, client: SharedClient) -> None:
    one = Namespace(broker, client, "test_x[a/b c]")
    other = Namespace(broker, client, "test_x[a/b c]")
    topic = one.topic("orders")
    assert topic.startswith("orders.test_x-a-b-c-")
    assert topic != other.topic("orders")
    assert one.group("g") == one.group("g") != other.group("g")


def test_topic_of_a_test_with_a_very_long_name_is_legal(
    broker: Broker, client: SharedClient
) -> None:
    assert len(Namespace(broker, client, "x" * 500).topic("orders")) < 249


def test_topic_takes_partitions_and_configs(namespace: Namespace, client: SharedClient) -> None:
    topic = namespace.topic("t", partitions=3, cleanup_policy="compact")
    assert client.partition_count(topic) == 3


def test_produced_records_are_returned_as_stored(namespace: Namespace) -> None:
    topic = namespace.topic("t", partitions=2)
    stored = namespace.produce(
        topic,
        [
            {"value": "plain", "partition": 0},
            {"key": "k", "value": {"n": 1}, "headers": {"h": "1", "n": None}, "partition": 1,
             "timestamp": 1_700_000_000_000},
            {"key": b"\xff", "value": None, "partition": 1},
        ],
    )  # fmt: skip
    assert [(record.partition, record.offset) for record in stored] == [(0, 0), (1, 0), (1, 1)]
    received = namespace.consume(topic, 3)
    assert sorted(received, key=lambda record: (record.partition, record.offset)) == stored
    assert stored[1].headers == (("h", b"1"), ("n", None))
    assert stored[1].timestamp_ms == 1_700_000_000_000


def test_reads_continue_where_the_last_one_ended(namespace: Namespace) -> None:
    topic = namespace.topic("t")
    namespace.produce(topic, ["a", "b", "c"])
    assert [record.text for record in namespace.consume(topic)] == ["a"]
    assert [record.text for record in namespace.expect(topic, ["b"], allow_more=True)] == ["b"]
    namespace.expect(topic, ["c"])
    namespace.expect(topic, [])


def test_consume_waits_for_records_and_for_the_topic_itself(namespace: Namespace) -> None:
    topic = namespace.group("created-by-the-application")
    application = threading.Thread(target=create_and_write, args=(namespace.broker, topic))
    application.start()
    assert [record.text for record in namespace.consume(topic, 2, within=30)] == ["a", "b"]
    application.join()


def create_and_write(broker: Broker, topic: str) -> None:
    broker.create_topic(topic)
    with SharedClient(broker.bootstrap_servers) as client:
        client.produce(topic, [{"value": "a"}, {"value": "b"}], within_s=30)


def test_consume_that_gets_too_few_shows_them(namespace: Namespace) -> None:
    topic = namespace.topic("t")
    namespace.produce(topic, [("k", "only")])
    with pytest.raises(AssertionError) as raised:
        namespace.consume(topic, 2, within=0.2)
    assert str(raised.value).splitlines() == [
        f"topic {topic}: 1 of 2 record(s) arrived within 0.2 s",
        "    key='k' value='only' (partition 0, offset 0)",
    ]


def test_missing_topic_is_named(namespace: Namespace) -> None:
    with pytest.raises(AssertionError, match="topic nowhere does not exist"):
        namespace.expect("nowhere", ["a"], within=0.05)
    with pytest.raises(AssertionError, match="topic nowhere does not exist"):
        namespace.expect("nowhere", [])


def test_expect_checks_order_in_one_partition(namespace: Namespace) -> None:
    topic = namespace.topic("t")
    namespace.produce(topic, ["a", "b"])
    with pytest.raises(AssertionError, match="1 missing, 1 unexpected"):
        namespace.expect(topic, ["b", "a"])


def test_expect_ignores_order_on_request_or_across_partitions(namespace: Namespace) -> None:
    single = namespace.topic("t")
    namespace.produce(single, ["a", "b"])
    namespace.expect(single, ["b", "a"], in_order=False)
    for number, order in enumerate((["a", "b"], ["b", "a"])):
        double = namespace.topic(f"u{number}", partitions=2)
        namespace.produce(double, [{"value": "a", "partition": 1}, {"value": "b", "partition": 0}])
        namespace.expect(double, order)


def test_expect_finds_an_unexpected_record(namespace: Namespace) -> None:
    topic = namespace.topic("t")
    namespace.produce(topic, ["a", "a"])
    with pytest.raises(AssertionError, match="1 unexpected\n") as raised:
        namespace.expect(
            topic, ["a"], within=1000
        )  # no need to wait for records that exist already
    assert "+ key=None value='a' (partition 0, offset 1)" in str(raised.value)


def test_expect_finds_a_missing_record(namespace: Namespace) -> None:
    topic = namespace.topic("t")
    namespace.produce(topic, ["a"])
    with pytest.raises(AssertionError, match=r"1 missing after 0\.2 s\n") as raised:
        namespace.expect(topic, ["a", ("k", "b")], within=0.2)
    assert "- key='k' value='b'" in str(raised.value)


@pytest.mark.parametrize("records", ["text", b"bytes"])
def test_records_must_be_in_a_list(namespace: Namespace, records: Any) -> None:
    with pytest.raises(TypeError, match="a list"):
        namespace.produce("t", records)


def test_refused_record_is_reported(namespace: Namespace) -> None:
    topic = namespace.topic("t", cleanup_policy="compact")
    with pytest.raises(Exception, match="INVALID_RECORD"):
        namespace.produce(topic, ["without a key"])


def test_closed_namespace_has_deleted_its_topics(broker: Broker, client: SharedClient) -> None:
    namespace = Namespace(broker, client)
    topic = namespace.topic("t")
    namespace.close()
    broker.delete_topics([])  # after the deletion, which `close` does not wait for
    assert client.partition_count(topic) == 0


def test_namespace_on_a_stopped_broker_raises(client: SharedClient) -> None:
    with Broker() as broker:
        namespace = Namespace(broker, client)
    with pytest.raises((RuntimeError, BrokerFailed, KafkaError), match="not running"):
        namespace.topic("t")
