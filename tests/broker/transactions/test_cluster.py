"""Transactions over three brokers that die at the worst moments. Nothing is torn."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import confluent_kafka as ck
import pytest

from kafkaesque.broker.partitions.coordinator_runtime import java_hash
from kafkaesque.testing import Cluster

pytestmark = pytest.mark.story

TIMEOUT_S = 40
PARTITIONS = 6
STATE_PARTITIONS = 4
END = b"end"


@pytest.fixture(scope="module")
def shared() -> Iterator[Cluster]:
    settings = {"transaction.state.log.num.partitions": STATE_PARTITIONS}
    with Cluster(3, settings=settings) as cluster:
        yield cluster


@pytest.fixture
def cluster(shared: Cluster) -> Iterator[Cluster]:
    yield shared
    shared.mend()
    shared.check()


@pytest.fixture
def topic(cluster: Cluster) -> str:
    name = f"t-{uuid.uuid4().hex}"
    cluster.create_topic(name, partitions=PARTITIONS)
    return name


def new_producer(cluster: Cluster, name: str) -> ck.Producer:
    producer = ck.Producer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "transactional.id": name,
            "transaction.timeout.ms": 30_000,
            "retry.backoff.ms": 20,
            "reconnect.backoff.ms": 10,
            "reconnect.backoff.max.ms": 100,
            "log_level": 0,
        }
    )
    producer.init_transactions(TIMEOUT_S)
    return producer


def send(producer: ck.Producer, topic: str, value: bytes) -> None:
    """To every partition."""
    for index in range(PARTITIONS):
        producer.produce(topic, value, partition=index)


def read(cluster: Cluster, topic: str) -> list[list[bytes]]:
    """What a reader of committed transactions gets of each partition."""
    writer = ck.Producer({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})
    for index in range(PARTITIONS):
        writer.produce(topic, END, partition=index)
    assert writer.flush(TIMEOUT_S) == 0
    consumer = ck.Consumer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "group.id": "unused",
            "isolation.level": "read_committed",
            "log_level": 0,
        }
    )
    consumer.assign([ck.TopicPartition(topic, index, 0) for index in range(PARTITIONS)])
    values: list[list[bytes]] = [[] for _ in range(PARTITIONS)]
    while not all(END in found for found in values):
        message = consumer.poll(TIMEOUT_S)
        assert message is not None, values
        if message.error():
            continue
        values[message.partition()].append(message.value())
    consumer.close()
    return [found[: found.index(END)] for found in values]


def coordinator_of(cluster: Cluster, name: str) -> int:
    return cluster.wait_until_leader("__transaction_state", java_hash(name) % STATE_PARTITIONS)


def test_transaction_over_all_brokers_is_committed_or_aborted_everywhere(
    cluster: Cluster, topic: str
) -> None:
    producer = new_producer(cluster, f"tx-{uuid.uuid4().hex}")
    for number in range(6):
        producer.begin_transaction()
        send(producer, topic, b"%d" % number)
        if number % 2:
            producer.flush(TIMEOUT_S)
            producer.abort_transaction(TIMEOUT_S)
        else:
            producer.commit_transaction(TIMEOUT_S)
    assert read(cluster, topic) == [[b"0", b"2", b"4"]] * PARTITIONS


def test_coordinator_dies_while_a_transaction_is_open(cluster: Cluster, topic: str) -> None:
    name = f"tx-{uuid.uuid4().hex}"
    producer = new_producer(cluster, name)
    producer.begin_transaction()
    send(producer, topic, b"before")
    assert producer.flush(TIMEOUT_S) == 0
    cluster.kill(coordinator_of(cluster, name))
    send(producer, topic, b"after")
    producer.commit_transaction(TIMEOUT_S)
    assert read(cluster, topic) == [[b"before", b"after"]] * PARTITIONS


def test_new_leader_of_a_partition_has_its_open_and_aborted_transactions(
    cluster: Cluster, topic: str
) -> None:
    producer = new_producer(cluster, f"tx-{uuid.uuid4().hex}")
    producer.begin_transaction()
    send(producer, topic, b"aborted")
    assert producer.flush(TIMEOUT_S) == 0
    producer.abort_transaction(TIMEOUT_S)
    producer.begin_transaction()
    send(producer, topic, b"committed")
    assert producer.flush(TIMEOUT_S) == 0
    cluster.kill(cluster.wait_until_leader(topic, 0))
    producer.commit_transaction(TIMEOUT_S)
    assert read(cluster, topic) == [[b"committed"]] * PARTITIONS


def test_coordinator_dies_right_after_it_decided_and_its_successor_writes_the_markers(
    cluster: Cluster, topic: str
) -> None:
    """The answer is sent before the markers: the next coordinator completes the decision."""
    name = f"tx-{uuid.uuid4().hex}"
    producer = new_producer(cluster, name)
    for number in range(3):
        producer.begin_transaction()
        send(producer, topic, b"%d" % number)
        producer.commit_transaction(TIMEOUT_S)
        cluster.kill(coordinator_of(cluster, name))
        cluster.mend()
    assert read(cluster, topic) == [[b"0", b"1", b"2"]] * PARTITIONS


def test_all_brokers_restart_and_transactions_go_on(cluster: Cluster, topic: str) -> None:
    name = f"tx-{uuid.uuid4().hex}"
    producer = new_producer(cluster, name)
    producer.begin_transaction()
    send(producer, topic, b"open")
    assert producer.flush(TIMEOUT_S) == 0
    cluster.kill(0, 1, 2)
    cluster.restart(0, 1, 2)
    cluster.mend()
    producer.abort_transaction(TIMEOUT_S)
    producer.begin_transaction()
    send(producer, topic, b"a")
    producer.commit_transaction(TIMEOUT_S)
    assert read(cluster, topic) == [[b"a"]] * PARTITIONS
