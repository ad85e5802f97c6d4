"""The registries of brokers, topics and consumer groups, read with kazoo from three brokers."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, Producer
from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError, NoNodeError
from kazoo.protocol.states import WatchedEvent
from kazoo.retry import KazooRetry
from tests.conformance_zookeeper.brokers import Brokers
from tests.conformance_zookeeper.collected import Collected
from tests.conformance_zookeeper.conftest import IS_BROKER
from tests.conformance_zookeeper.opened import opened
from tests.waiting import eventually

pytestmark = pytest.mark.skipif(
    not IS_BROKER, reason="about brokers of ours; run without ZOOKEEPER"
)


@pytest.fixture
def client(brokers: Brokers) -> Iterator[KazooClient]:
    made = KazooClient(
        hosts=brokers.address(0), connection_retry=KazooRetry(max_tries=-1, delay=0.1)
    )
    made.start(timeout=15)
    yield made
    made.stop()
    made.close()


def produce(brokers: Brokers, topic: str, count: int = 10) -> None:
    producer = Producer({"bootstrap.servers": brokers.target.bootstrap_servers})
    for number in range(count):
        producer.produce(topic, str(number))
    assert producer.flush(30) == 0


def test_brokers_topics_and_controller_are_nodes(brokers: Brokers, client: KazooClient) -> None:
    produce(brokers, "seen")
    assert sorted(client.get_children("/brokers/ids")) == ["0", "1", "2"]
    data, stat = client.get("/brokers/ids/1")
    registered = json.loads(data)
    assert f"{registered['host']}:{registered['port']}" == brokers.target.address(1)
    assert stat.ephemeralOwner != 0
    assert "seen" in client.get_children("/brokers/topics")
    replicas = json.loads(client.get("/brokers/topics/seen")[0])["partitions"]["0"]
    state = json.loads(client.get("/brokers/topics/seen/partitions/0/state")[0])
    assert sorted(replicas) == [0, 1, 2]
    assert state["leader"] == brokers.target.wait_for_leader(("seen", 0))
    assert (
        json.loads(client.get("/controller")[0])["brokerid"] == brokers.target.wait_for_controller()
    )
    assert int(client.get("/controller_epoch")[0]) > 0
    names = set(client.get_children("/"))
    assert {"brokers", "cluster", "consumers", "controller", "zookeeper"} <= names
    assert client.get("/")[1].numChildren == len(names)


def test_watch_fires_when_a_topic_is_created(brokers: Brokers, client: KazooClient) -> None:
    events: Collected[WatchedEvent] = Collected()
    client.get_children("/brokers/topics", watch=events)
    produce(brokers, "new-one")
    (event,) = events.wait(1)
    assert (event.type, event.path) == ("CHILD", "/brokers/topics")
    assert "new-one" in client.get_children("/brokers/topics")


def test_registries_are_read_only(client: KazooClient) -> None:
    with pytest.raises(NoAuthError):
        client.create("/brokers/ids/9", b"me too")
    with pytest.raises(NoAuthError):
        client.set("/controller", b"me")
    with pytest.raises(NoAuthError):
        client.delete("/brokers/topics")
    transaction = client.transaction()
    transaction.create("/fine")
    transaction.create("/brokers/mine")
    assert any(isinstance(result, NoAuthError) for result in transaction.commit())
    assert client.exists("/fine") is None
    with pytest.raises(NoNodeError):
        client.get("/brokers/mine")
    acls, _ = client.get_acls("/brokers")
    assert [(acl.perms, acl.id.scheme) for acl in acls] == [(1, "world")]


def test_consumer_group_is_seen_on_every_broker(brokers: Brokers) -> None:
    produce(brokers, "read-by-group", 5)
    consumer = Consumer(
        {
            "bootstrap.servers": brokers.target.bootstrap_servers,
            "group.id": "team/registered",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    try:
        consumer.subscribe(["read-by-group"])
        read = 0
        while read < 5:
            message = consumer.poll(30)
            assert message is not None
            read += message.error() is None
        consumer.commit(asynchronous=False)
        at = "/consumers/team%2Fregistered"
        owners = set()
        for node in range(3):
            with opened(brokers.address(node)) as client:
                (member,) = client.get_children(f"{at}/ids")
                shown = json.loads(client.get(f"{at}/ids/{member}")[0])
                assert shown["subscription"] == {"read-by-group": 1}
                owner, stat = client.get(f"{at}/owners/read-by-group/0")
                assert owner.decode() == member
                owners.add(stat.ephemeralOwner)
                assert client.get(f"{at}/offsets/read-by-group/0")[0] == b"5"
                if node == 2:
                    gone: Collected[WatchedEvent] = Collected()
                    client.get_children(f"{at}/ids", watch=gone)
                    consumer.close()
                    gone.wait(1)
                    assert client.get_children(f"{at}/ids") == []
        assert len(owners) == 1, "every broker names the same owner"
    finally:
        with contextlib.suppress(RuntimeError):  # closed already
            consumer.close()


def test_broker_that_dies_leaves_the_registry(brokers: Brokers, client: KazooClient) -> None:
    events: Collected[WatchedEvent] = Collected()
    assert client.exists("/brokers/ids/2", watch=events) is not None
    brokers.kill(2)
    (event,) = events.wait(1)
    assert (event.type, event.path) == ("DELETED", "/brokers/ids/2")
    assert sorted(client.get_children("/brokers/ids")) == ["0", "1"]
    back: Collected[WatchedEvent] = Collected()
    assert client.exists("/brokers/ids/2", watch=back) is None
    brokers.start(2)
    back.wait(1, timeout_s=30)
    eventually(lambda: sorted(client.get_children("/brokers/ids")) == ["0", "1", "2"])
