"""The internal topics are compacted: their size depends on their content, not on the number of changes."""

from __future__ import annotations

from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition
from tests.waiting import eventually

from kafkaesque.testing.broker_process import BrokerProcess

COMMITS = 3_000
TRANSACTIONS = 150
SEGMENT_BYTES = 16_384
WITHIN_S = 60.0
SETTINGS = {
    "offsets.topic.num.partitions": 1,
    "transaction.state.log.num.partitions": 1,
    "offsets.topic.segment.bytes": SEGMENT_BYTES,
    "transaction.state.log.segment.bytes": SEGMENT_BYTES,
    "log.cleaner.backoff.ms": 50,
    "flush": "never",
}


def sizes(data: Path) -> dict[str, int]:
    """The size of the logs of each internal topic."""
    found: dict[str, int] = {}
    for path in data.glob("topics/*/0/*.log"):
        found[path.parent.parent.name] = found.get(path.parent.parent.name, 0) + path.stat().st_size
    return found


def test_many_commits_and_transactions_leave_small_topics_with_the_newest_state(
    tmp_path: Path,
) -> None:
    with BrokerProcess(tmp_path, SETTINGS) as broker:
        consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "g"})
        producer = Producer(
            {"bootstrap.servers": broker.bootstrap_servers, "transactional.id": "tx"}
        )
        producer.init_transactions(30)
        for number in range(TRANSACTIONS):
            producer.begin_transaction()
            producer.produce("orders", f"{number}".encode(), partition=0)
            producer.commit_transaction(30)
        for number in range(1, COMMITS + 1):
            point = TopicPartition("orders", 0, number)
            consumer.commit(offsets=[point], asynchronous=number % 100 != 0)
        # An active segment and a cleaned one, for each of the two topics.
        eventually(
            lambda: max(sizes(broker.data).values()) <= 3 * SEGMENT_BYTES,
            "internal topics are small",
            WITHIN_S,
        )
        broker.kill()
        broker.start()
        (found,) = consumer.committed([TopicPartition("orders", 0)], timeout=30)
        assert found.offset == COMMITS
        producer.begin_transaction()
        producer.produce("orders", b"on", partition=0)
        producer.commit_transaction(30)
        consumer.close()
