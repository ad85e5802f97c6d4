"""Kafka's own copy test, small: consume, produce, note how far one is, all in transactions, while
brokers die. Every message arrives once and in order.

The progress of the copy is in a separate topic, which Kafka Streams calls a changelog. The same with
offsets of a group, with copiers that die too, is `kafkaesque fault run transactions-copy`.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import confluent_kafka as ck
import pytest

from kafkaesque.testing import Cluster

pytestmark = pytest.mark.story

MESSAGES = 3000
PER_TRANSACTION = 100
TIMEOUT_S = 40
PROGRESS = "progress"
CLIENT = {
    "retry.backoff.ms": 20,
    "reconnect.backoff.ms": 10,
    "reconnect.backoff.max.ms": 100,
    "log_level": 0,
}


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    settings = {"offsets.topic.num.partitions": 4, "group.initial.rebalance.delay.ms": 0}
    with Cluster(3, settings=settings) as cluster:
        yield cluster


class Copier:
    """Copies one partition. Starts again, as a new process would, whenever its producer is fenced or fails."""

    def __init__(self, cluster: Cluster, source: str, target: str) -> None:
        self._cluster = cluster
        self._bootstrap = cluster.bootstrap_servers
        self._source, self._target = source, target
        self._name = f"copier-{uuid.uuid4().hex}"
        self.done = 0
        self._open()

    def _open(self) -> None:
        self._producer = ck.Producer(
            {
                "bootstrap.servers": self._bootstrap,
                "transactional.id": self._name,
                "transaction.timeout.ms": 20_000,
                **CLIENT,
            }
        )
        self._producer.init_transactions(TIMEOUT_S)
        self._consumer = ck.Consumer(
            {
                "bootstrap.servers": self._bootstrap,
                "group.id": self._name,
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                **CLIENT,
            }
        )
        self._rewind()

    def _rewind(self) -> None:
        """Returns to the committed position."""
        noted = read_committed(self._cluster, PROGRESS)
        self.done = int(noted[-1]) if noted else 0
        self._consumer.assign([ck.TopicPartition(self._source, 0, self.done)])

    def copy_some(self) -> None:
        """One transaction."""
        messages = self._consumer.consume(PER_TRANSACTION, 5)
        taken = [message for message in messages if not message.error()]
        if not taken:
            return
        end = (taken[-1].offset() or 0) + 1
        try:
            self._producer.begin_transaction()
            for message in taken:
                self._producer.produce(self._target, message.value(), partition=0)
            self._producer.produce(PROGRESS, b"%d" % end, partition=0)
            self._producer.commit_transaction(TIMEOUT_S)
        except ck.KafkaException as error:
            self._recover(error)
        else:
            self.done = end

    def _recover(self, error: ck.KafkaException) -> None:
        if error.args[0].txn_requires_abort():
            self._producer.abort_transaction(TIMEOUT_S)
            self._rewind()
        else:
            self._consumer.close()
            self._open()

    def close(self) -> None:
        self._consumer.close()


def test_messages_are_copied_once_and_in_order_while_brokers_die(cluster: Cluster) -> None:
    for name in ("source", "target", PROGRESS):
        cluster.create_topic(name, partitions=1)
    seeds = [b"%d" % number for number in range(MESSAGES)]
    writer = ck.Producer({"bootstrap.servers": cluster.bootstrap_servers, **CLIENT})
    for seed in seeds:
        writer.produce("source", seed, partition=0)
    assert writer.flush(TIMEOUT_S) == 0
    copier = Copier(cluster, "source", "target")
    victims = [victim for _ in range(2) for victim in range(3)]
    rounds = 0
    while copier.done < MESSAGES:
        copier.copy_some()
        rounds += 1
        if rounds % 4 == 0 and victims:
            cluster.mend()
            cluster.kill(victims.pop(0))
    copier.close()
    assert not victims, "the copy was over too soon"
    cluster.mend()
    assert read_committed(cluster, "target") == seeds


def read_committed(cluster: Cluster, topic: str) -> list[bytes]:
    """All there is in partition 0."""
    consumer = ck.Consumer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "group.id": "unused",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            **CLIENT,
        }
    )
    consumer.assign([ck.TopicPartition(topic, 0, 0)])
    values: list[bytes] = []
    while True:
        message = consumer.poll(TIMEOUT_S)
        assert message is not None, len(values)
        if message.error() is None:
            values.append(message.value() or b"")
        elif message.error().code() == ck.KafkaError._PARTITION_EOF:
            break
    consumer.close()
    return values
