"""Transactions with real clients: librdkafka, aiokafka and Java 3 use the old flow, Java 4 the new one."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator

import pytest
from tests.conformance.clients import Client, ClientFailure, Message
from tests.conformance.clients.java import JavaClient
from tests.conformance.conftest import Topics
from tests.conformance.raw import RawClient
from tests.conformance.transactional import CLIENTS, Transactional, finish, open_transactional
from tests.waiting import eventually_passes

from kafkaesque.model.errors import ErrorCode

pytestmark = pytest.mark.parametrize("client", CLIENTS, indirect=True)
Open = Callable[..., Transactional]


@pytest.fixture
def opened(client: Client) -> Iterator[Open]:
    """Makes producers that are closed when the test ends."""
    made: list[Transactional] = []

    def make(name: str | None = None, timeout_ms: int = 20_000) -> Transactional:
        one = open_transactional(client, name, timeout_ms)
        made.append(one)
        one.init()
        return one

    yield make
    for one in made:
        one.close()


def test_committed_transactions_are_read_and_aborted_ones_are_not(
    client: Client, opened: Open, topics: Topics
) -> None:
    topic = topics.create(partitions=2)
    producer = opened()
    for number in range(6):
        producer.begin()
        for partition in (0, 1):
            values = [b"%d-%d" % (number, index) for index in range(5)]
            producer.send(topic, *values, partition=partition)
        if number % 2:
            producer.abort()
        else:
            producer.commit()
    wanted = [b"%d-%d" % (number, index) for number in (0, 2, 4) for index in range(5)]
    for partition in (0, 1):
        assert finish(client, topic, partition) == wanted


def test_many_small_transactions_in_sequence(client: Client, opened: Open, topic: str) -> None:
    producer = opened()
    for number in range(30):
        producer.transact(topic, b"%d" % number)
    assert finish(client, topic) == [b"%d" % number for number in range(30)]


def test_transactions_of_several_producers_interleave(
    client: Client, opened: Open, topic: str
) -> None:
    one, two = opened(), opened()
    one.begin()
    two.begin()
    one.send(topic, b"a1")
    two.send(topic, b"b1")
    one.send(topic, b"a2")
    two.send(topic, b"b2")
    two.abort()
    one.send(topic, b"a3")
    one.commit()
    assert finish(client, topic) == [b"a1", b"a2", b"a3"]


def test_second_producer_with_the_same_id_fences_the_first(
    client: Client, opened: Open, topic: str
) -> None:
    name = f"tx-{uuid.uuid4().hex}"
    first = opened(name)
    first.begin()
    first.send(topic, b"zombie")
    second = opened(name)
    with pytest.raises(ClientFailure):
        first.commit()
    second.transact(topic, b"a")
    assert finish(client, topic) == [b"a"]


def test_transaction_that_takes_too_long_is_aborted(
    client: Client, opened: Open, topic: str
) -> None:
    producer = opened(timeout_ms=1000)
    producer.begin()
    producer.send(topic, b"slow")
    assert finish(client, topic) == []
    with pytest.raises(ClientFailure):
        producer.commit()


@pytest.mark.parametrize("commit", [True, False], ids=["commit", "abort"])
def test_consumed_offsets_are_committed_with_the_results(
    client: Client, opened: Open, topics: Topics, group: str, raw: RawClient, commit: bool
) -> None:
    source, target = topics.create(), topics.create()
    client.produce(source, [Message(b"%d" % number) for number in range(10)])
    producer = opened()
    producer.begin()
    producer.send(target, *(b"made of %d" % number for number in range(10)))
    producer.send_offset(group, source, 10)
    if commit:
        producer.commit()
    else:
        producer.abort()

    def committed() -> None:
        (found,) = raw.call("find_coordinator", 4, coordinator_keys=[group])["coordinators"]
        with RawClient(f"{found['host']}:{found['port']}") as coordinator:
            answer = coordinator.call(
                "offset_fetch",
                7,
                group_id=group,
                topics=[{"name": source, "partition_indexes": [0]}],
                require_stable=True,
            )
        row = answer["topics"][0]["partitions"][0]
        assert (row["error_code"], row["committed_offset"]) == (
            ErrorCode.NONE,
            10 if commit else -1,
        )

    eventually_passes(committed)
    made = finish(client, target)
    assert made == ([b"made of %d" % number for number in range(10)] if commit else [])


def test_admin_client_describes_and_aborts_an_open_transaction(
    client: Client, opened: Open, topic: str
) -> None:
    if not isinstance(client, JavaClient):
        pytest.skip("only Java's admin client supports transactions: run with -k java")
    name = f"tx-{uuid.uuid4().hex}"
    producer = opened(name)
    producer.begin()
    producer.send(topic, b"hanging")
    assert name in client.program.call("txn_admin_list")
    found = client.program.call("txn_admin_describe", transactional_id=name)
    assert (found["state"], found["partitions"]) == ("Ongoing", 1)
    client.program.call("txn_admin_abort", topic=topic, partition=0)
    assert finish(client, topic) == []
    client.program.call("txn_admin_fence", transactional_id=name)
    with pytest.raises(ClientFailure):
        producer.commit()
