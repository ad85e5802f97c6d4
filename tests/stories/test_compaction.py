"""A compacted topic on three brokers: each cleans its own log, any may die, and no row is lost."""

from __future__ import annotations

import json
import threading
import urllib.request
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

from kafkaesque.testing.cluster_processes import ClusterProcesses
from kafkaesque.testing.waiting import poll_until

PATIENCE_S = 90.0
QUIET = {"log_level": 0}
KEYS = 40
COMPACTED: dict[str, str] = {
    "cleanup.policy": "compact",
    "segment.bytes": "20000",
    "min.cleanable.dirty.ratio": "0.01",
}


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterProcesses]:
    settings = {"log.cleaner.backoff.ms": 200}
    with ClusterProcesses(3, tmp_path_factory.mktemp("compaction"), settings=settings) as cluster:
        yield cluster


@pytest.fixture
def cluster(shared: ClusterProcesses) -> Iterator[ClusterProcesses]:
    yield shared
    shared.mend()


class Table:
    """Rows that a producer updates again and again; `expected` is what was acknowledged last."""

    def __init__(self, cluster: ClusterProcesses, topic: str) -> None:
        self.expected: dict[str, int] = {}
        self.failed: list[KafkaError] = []
        self._topic = topic
        self._version = 0
        self._lock = threading.Lock()
        self._producer = Producer(
            {
                "bootstrap.servers": cluster.bootstrap_servers,
                "enable.idempotence": True,
                "linger.ms": 5,
                "batch.size": 4000,
                **QUIET,
            }
        )

    def update(self, count: int) -> None:
        for _ in range(count):
            key, self._version = f"k{self._version % KEYS}", self._version + 1
            value = f"{self._version:08d}".ljust(60, ".")
            self._producer.produce(self._topic, value, key, 0, on_delivery=self._delivered)
            self._producer.poll(0)
        assert self._producer.flush(PATIENCE_S) == 0
        assert self.failed == []

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.failed.append(error)
        else:
            version = int((message.value() or b"")[:8])
            with self._lock:
                self.expected[str(message.key(), "ascii")] = version


def read(cluster: ClusterProcesses, topic: str) -> list[tuple[int, str, int]]:
    """(offset, key, version) of every record, from the beginning."""
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "group.id": "compaction",
            "enable.partition.eof": True,
            "enable.auto.commit": False,
            **QUIET,
        }
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    found = []
    try:
        for _ in range(100_000):
            message = consumer.poll(PATIENCE_S)
            assert message is not None, f"nothing came after {found[-1:]}"
            if message.error() is None:
                version = int((message.value() or b"")[:8])
                found.append((message.offset() or 0, str(message.key(), "ascii"), version))
            elif message.error().code() == KafkaError._PARTITION_EOF:
                return found
    finally:
        consumer.close()
    raise AssertionError("no end")


def check_table(cluster: ClusterProcesses, topic: str, table: Table) -> list[tuple[int, str, int]]:
    found = read(cluster, topic)
    assert {key: version for _, key, version in found} == table.expected
    offsets = [offset for offset, _, _ in found]
    assert offsets == sorted(offsets)
    assert all(version == offset + 1 for offset, _, version in found), "an offset has changed"
    return found


def stored_bytes(cluster: ClusterProcesses, number: int, topic: str) -> int | None:
    """The size of the topic on one broker, according to its metrics."""
    facts = json.loads((cluster.process(number).data / "broker.json").read_text())
    with urllib.request.urlopen(f"http://{facts['http']}/metrics", timeout=PATIENCE_S) as page:
        lines = page.read().decode().splitlines()
    start = "kafkaesque_log_size_bytes{"
    found = [line for line in lines if line.startswith(start) and f'topic="{topic}"' in line]
    return int(float(found[0].split()[-1])) if found else None


def wait_until_cleaned(cluster: ClusterProcesses, topic: str, size_bytes_max: int) -> None:
    for number in cluster.running:

        def is_short(number: int = number) -> bool | None:
            size_bytes = stored_bytes(cluster, number, topic)
            return True if size_bytes is not None and size_bytes <= size_bytes_max else None

        poll_until(is_short, lambda: f"a shorter {topic}", PATIENCE_S)


def test_leader_dies_and_the_next_one_has_every_row(cluster: ClusterProcesses) -> None:
    cluster.create_topic("rows", 1, replication_factor=3, **COMPACTED)
    table = Table(cluster, "rows")
    table.update(4000)
    wait_until_cleaned(cluster, "rows", 60_000)
    assert len(check_table(cluster, "rows", table)) < 2000
    cluster.kill(cluster.wait_until_leader("rows"))
    cluster.wait_until_leader("rows")
    check_table(cluster, "rows", table)
    table.update(2000)
    check_table(cluster, "rows", table)


def test_wiped_broker_copies_the_cleaned_log_from_the_leader(cluster: ClusterProcesses) -> None:
    cluster.create_topic("wiped", 1, replication_factor=3, **COMPACTED)
    table = Table(cluster, "wiped")
    table.update(4000)
    wait_until_cleaned(cluster, "wiped", 60_000)
    victim = next(n for n in cluster.running if n != cluster.wait_until_leader("wiped"))
    cluster.wipe(victim)
    table.update(500)
    cluster.restart(victim)
    cluster.wait_until_in_sync("wiped")
    table.update(500)
    others = [number for number in cluster.running if number != victim]
    cluster.wait_until_in_sync("wiped")
    cluster.kill(others[0])
    cluster.wait_until_leader("wiped")
    check_table(cluster, "wiped", table)
    assert "fetching offsets [0, " in cluster.process(victim).log.read_text()


def test_broker_that_was_down_while_the_others_cleaned_has_every_row(
    cluster: ClusterProcesses,
) -> None:
    cluster.create_topic("away", 1, replication_factor=3, **COMPACTED)
    table = Table(cluster, "away")
    table.update(1000)
    cluster.wait_until_in_sync("away")
    victim = next(n for n in cluster.running if n != cluster.wait_until_leader("away"))
    cluster.kill(victim)
    table.update(4000)
    wait_until_cleaned(cluster, "away", 60_000)
    cluster.restart(victim)
    cluster.wait_until_in_sync("away")
    cluster.kill(next(number for number in cluster.running if number != victim))
    cluster.wait_until_leader("away")
    table.update(100)
    check_table(cluster, "away", table)
