"""The text protocol on three brokers, together with Kafka clients on the same topics and groups."""

from __future__ import annotations

import json
import re
import socket
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from types import TracebackType
from typing import Self

import pytest
from confluent_kafka import Consumer, Producer
from tests.waiting import eventually

from kafkaesque.broker.text.rules.commands import LINE_BYTES_MAX
from kafkaesque.testing.cluster_processes import ClusterProcesses

pytestmark = pytest.mark.story

WITHIN_S = 30.0


class TextClient:
    """As telnet: lines."""

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), WITHIN_S)
        self._file = self._socket.makefile("rb")
        assert self.line().startswith("OK kafkaesque")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        self._file.close()
        self._socket.close()

    def line(self) -> str:
        return self._file.readline().decode().removesuffix("\r\n")

    def send(self, data: bytes) -> None:
        self._socket.sendall(data)

    def is_closed(self) -> bool:
        with suppress(ConnectionResetError):
            return self._file.read() == b""
        return True

    def ask(self, line: str) -> list[str]:
        """Everything up to the line that ends the answer."""
        self.send(f"{line}\r\n".encode())
        answer = [self.line()]
        while not answer[-1].startswith(("OK", "ERR", "END")):
            assert answer[-1], "the connection was closed"
            answer.append(self.line())
        return answer

    def bodies(self, line: str) -> list[str]:
        """Of the messages that a CONS shows."""
        *messages, end = self.ask(line)
        assert end == f"END count={len(messages)}" or end.startswith(
            f"END count={len(messages)} more="
        )
        return [json.loads(message.split(" ", 4)[4])["Body"] for message in messages]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterProcesses]:
    settings = {"text.listener": "127.0.0.1:0", "group.initial.rebalance.delay.ms": 0}
    with ClusterProcesses(3, tmp_path_factory.mktemp("text"), settings=settings) as running:
        yield running


@pytest.fixture
def client(cluster: ClusterProcesses) -> Iterator[Callable[..., TextClient]]:
    """Creates clients of a broker, and closes them after the test."""
    made: list[TextClient] = []

    def make(broker: int = 0) -> TextClient:
        made.append(TextClient(cluster.process(broker).facts["text"]))
        return made[-1]

    yield make
    for one in made:
        one.close()


@pytest.fixture
def topic(cluster: ClusterProcesses) -> str:
    """Of three partitions, led by different brokers."""
    name = f"t-{uuid.uuid4().hex[:8]}"
    cluster.create_topic(name, 3)
    return name


NewClient = Callable[..., TextClient]


def consumer(cluster: ClusterProcesses, group: str, topic: str) -> Consumer:
    made = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "partition.assignment.strategy": "range",
        }
    )
    made.subscribe([topic])
    return made


def test_published_by_text_is_read_by_kafka(
    cluster: ClusterProcesses, client: NewClient, topic: str
) -> None:
    # Any broker passes it on to the leader of the partition.
    answers = [
        client(broker).ask(
            f'PUBS {topic} {{"Header": "h", "Key": "k{broker}", "Body": "b{broker}"}}'
        )[0]
        for broker in range(3)
    ]
    assert all(re.fullmatch(r"OK partition=\d offset=\d", line) for line in answers)
    reader = consumer(cluster, "kafka-readers", topic)
    seen = {}
    while len(seen) < 3:
        message = reader.poll(WITHIN_S)
        assert message is not None
        place = f"OK partition={message.partition()} offset={message.offset()}"
        seen[message.key()] = (place, message.value(), message.headers())
    reader.close()
    assert seen == {
        b"k%d" % broker: (answers[broker], b"b%d" % broker, [("Header", b"h")])
        for broker in range(3)
    }


def test_keys_go_where_the_java_client_sends_them(
    cluster: ClusterProcesses, client: NewClient, topic: str
) -> None:
    producer = Producer(
        {"bootstrap.servers": cluster.bootstrap_servers, "partitioner": "murmur2_random"}
    )
    placed: dict[str, int] = {}
    for key in ("a", "b", "124", "a long key"):
        producer.produce(
            topic,
            b"x",
            key,
            on_delivery=lambda error, message: placed.update(
                {message.key().decode(): message.partition()}
            ),
        )
    producer.flush(WITHIN_S)
    text = client()
    for key, partition in placed.items():
        (line,) = text.ask(f'PUBS {topic} {{"Key": "{key}", "Body": ""}}')
        assert line.startswith(f"OK partition={partition} ")


def test_published_by_kafka_is_consumed_by_text(
    cluster: ClusterProcesses, client: NewClient, topic: str
) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})
    for number in range(30):
        producer.produce(topic, f"v{number}", f"k{number}")
    assert producer.flush(WITHIN_S) == 0
    text = client(1)
    text.ask(f"SUBS {topic} text-readers")
    seen: list[str] = []
    while len(seen) < 30:
        seen += text.bodies(f"CONS {topic} s1")
    assert sorted(seen) == sorted(f"v{number}" for number in range(30))
    # And once more, from the beginning and from the middle of one partition.
    assert sorted(text.bodies(f"CONS {topic} s1 0")) == sorted(seen)
    assert text.ask(f"CONS {topic} s1 0:2")[0].startswith(
        f"MSG topic={topic} partition=0 offset=2 "
    )
    assert text.bodies(f"CONS {topic} s1") == []


def test_two_text_clients_share_a_group_and_one_takes_over(client: NewClient, topic: str) -> None:
    first, second = client(0), client(1)
    first.ask(f"SUBS {topic} sharing")
    assert "partitions=none" not in second.ask(f"SUBS {topic} sharing")[0]
    publisher = client(2)
    for number in range(9):
        publisher.ask(f"PUBS {topic} m{number}")
    seen: list[str] = []

    def read_both() -> bool:
        seen.extend(first.bodies(f"CONS {topic} s1") + second.bodies(f"CONS {topic} s1"))
        return len(set(seen)) == 9

    eventually(read_both)
    assert second.ask("QUIT") == ["OK bye"]
    for number in range(3):
        publisher.ask(f"PUBS {topic} later{number}")

    def read_first() -> bool:
        seen.extend(first.bodies(f"CONS {topic} s1"))
        return len(set(seen)) == 12

    eventually(read_first)
    assert len(seen) == 12


def test_text_client_and_kafka_consumer_share_a_group(
    cluster: ClusterProcesses, client: NewClient, topic: str
) -> None:
    reader = consumer(cluster, "mixed", topic)
    text = client(0)
    text.ask(f"SUBS {topic} mixed")

    def shared() -> bool:
        reader.poll(0.1)
        return 0 < len(reader.assignment()) < 3

    eventually(shared)
    publisher = client(2)
    for number in range(9):
        publisher.ask(f"PUBS {topic} m{number}")
    by_kafka: set[str] = set()
    by_text: set[str] = set()

    def all_seen() -> bool:
        message = reader.poll(0.1)
        if message is not None and message.error() is None:
            by_kafka.add(message.value().decode())
        by_text.update(text.bodies(f"CONS {topic} s1"))
        return len(by_kafka | by_text) == 9

    eventually(all_seen)
    assert by_kafka
    assert by_text
    assert not by_kafka & by_text
    reader.close()


def test_unacknowledged_messages_are_delivered_again(client: NewClient, topic: str) -> None:
    publisher = client(0)
    publisher.ask(f"PUBS {topic} once")
    lost = client(1)
    lost.ask(f"SUBS {topic} careful")
    assert lost.bodies(f"CONS {topic} s1") == ["once"]
    lost.close()
    kept = client(2)
    kept.ask(f"SUBS {topic} careful")
    seen: list[str] = []

    def shown_again() -> bool:
        seen.extend(kept.bodies(f"CONS {topic} s1"))
        return bool(seen)

    eventually(shown_again)
    assert seen == ["once"]
    assert kept.ask("QUIT") == ["OK bye"]
    later = client(1)
    later.ask(f"SUBS {topic} careful")
    assert later.bodies(f"CONS {topic} s1") == []


def test_pattern_finds_topics_that_come_later(client: NewClient) -> None:
    prefix = f"p-{uuid.uuid4().hex[:8]}"
    text = client(0)
    assert text.ask(f"SUBS {prefix}.* watching")[0].endswith("partitions=none")
    text.ask(f"PUBS {prefix}.new hello")
    assert text.bodies(f"CONS {prefix}.* s1") == ["hello"]
    assert text.ask(f"TOPICS {prefix}.*")[-1] == "END count=1"


def test_subscription_makes_a_topic_of_so_many_partitions(client: NewClient) -> None:
    name = f"made-{uuid.uuid4().hex[:8]}"
    text = client(0)
    (line,) = text.ask(f"SUBS {name} makers 4")
    assert line.endswith(f"partitions={name}-0,{name}-1,{name}-2,{name}-3")
    (refused,) = text.ask(f"SUBS {name} makers 5")
    assert refused == f"ERR BAD_COMMAND {name} has 4 partitions"


def test_unknown_lines_are_harmless(client: NewClient, topic: str) -> None:
    text = client()
    text.send(b"\x00\xff\xfe garbage \x1b[2J\r\n")
    assert text.line().startswith("ERR BAD_COMMAND")
    assert text.ask(f"CONS {topic} s1")[0].startswith("ERR BAD_COMMAND no subscription")
    assert text.ask("HELP")[-1] == "END count=6"
    browser = client()
    browser.send(b"POST / HTTP/1.1\r\nHost: x\r\n\r\nPUBS victim x\r\n")
    assert browser.line().startswith("ERR NOT_HTTP")
    assert browser.is_closed()


def test_line_without_an_end_closes_the_connection(client: NewClient) -> None:
    text = client()
    with suppress(ConnectionError):
        text.send(b"PUBS t " + b"x" * (LINE_BYTES_MAX + 70_000))
        assert text.line().startswith("ERR LINE_TOO_LONG")
    assert text.is_closed()


def test_publishing_continues_when_the_leader_is_killed(
    cluster: ClusterProcesses, client: NewClient, topic: str
) -> None:
    leader = cluster.leader_of(topic, 0)
    text = client((leader + 1) % 3)
    message = f'PUBS {topic} {{"Key": "KEY", "Body": "x"}}'
    key = next(
        key
        for key in map(str, range(100))
        if "partition=0 " in text.ask(message.replace("KEY", key))[0]
    )
    cluster.kill(leader)
    try:
        assert text.ask(message.replace("KEY", key))[0].startswith("OK partition=0 ")
    finally:
        cluster.mend()
