"""Three brokers that tolerate the loss of any one: real processes, real clients, kill -9."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, ElectionType, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from tests.stories.wire_client import WireClient

from kafkaesque.model.errors import ErrorCode
from kafkaesque.testing.broker_process import BrokerNotReady, BrokerProcess
from kafkaesque.testing.cluster_processes import ClusterProcesses
from kafkaesque.testing.waiting import poll_until

COMMAND = [sys.executable, "-m", "kafkaesque.cli.main"]
QUIET = {"log_level": 0}
PATIENCE_S = 30.0


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterProcesses]:
    with ClusterProcesses(3, tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster


@pytest.fixture
def cluster(shared: ClusterProcesses) -> Iterator[ClusterProcesses]:
    """All brokers run and are in sync after each story."""
    yield shared
    shared.mend()


class Load:
    """A producer that writes numbers to one partition until `end`."""

    def __init__(self, cluster: ClusterProcesses, topic: str, **settings: int) -> None:
        self.acknowledged: list[int] = []
        self.errors: list[KafkaError] = []
        self._topic = topic
        self._producer = Producer(
            {
                "bootstrap.servers": cluster.bootstrap_servers,
                "enable.idempotence": True,
                "linger.ms": 0,
                **{name.replace("_", "."): value for name, value in settings.items()},
                **QUIET,
            }
        )
        self._sent = 0
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._ending.wait(0.002):
            self._producer.produce(
                self._topic, str(self._sent), partition=0, on_delivery=self._delivered
            )
            self._sent += 1
            self._producer.poll(0)

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.errors.append(error)
        else:
            self.acknowledged.append(int(message.value() or b""))

    def wait_for(self, more: int) -> None:
        """Wait until `more` further records are acknowledged."""
        wanted = len(self.acknowledged) + more
        poll_until(
            lambda: len(self.acknowledged) >= wanted or None,
            lambda: f"{more} more than {wanted - more} acknowledged records",
            PATIENCE_S,
        )

    def end(self) -> None:
        self._ending.set()
        self._thread.join()
        assert self._producer.flush(PATIENCE_S) == 0
        self._producer.close()


@pytest.fixture
def loads(cluster: ClusterProcesses) -> Iterator[list[Load]]:
    """Starts loads that end with the story, even if it fails."""
    started: list[Load] = []
    yield started
    for load in started:
        load._ending.set()


def produce(cluster: ClusterProcesses, topic: str, values: list[str]) -> None:
    errors: list[KafkaError] = []
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, **QUIET})
    for value in values:
        producer.produce(topic, value, on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(PATIENCE_S) == 0
    assert errors == [None] * len(values)
    producer.close()


def read_all(cluster: ClusterProcesses, topic: str) -> list[str]:
    """Every committed record of partition 0, from the leader itself, once it may serve."""
    records: list[str] = []

    def look() -> bool | None:
        leader = cluster.leader_of(topic)
        if leader is None:
            return None
        with WireClient(cluster.address(leader)) as client:
            if client.fetch(topic, 0).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER:
                return None
            records.extend((record.value or b"").decode() for record in client.read_all(topic))
        return True

    poll_until(look, lambda: f"a leader of {topic} that serves", PATIENCE_S)
    return records


def new_consumer(cluster: ClusterProcesses, group: str) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            **QUIET,
        }
    )


def consume(consumers: list[Consumer], count: int) -> list[Message]:
    received: list[Message] = []

    def look() -> bool | None:
        for consumer in consumers:
            received.extend(m for m in consumer.consume(100, 0.05) if m.error() is None)
        return len(received) >= count or None

    poll_until(look, lambda: f"{count} records, not {len(received)}", PATIENCE_S)
    return received


def admin_of(cluster: ClusterProcesses) -> AdminClient:
    return AdminClient({"bootstrap.servers": cluster.bootstrap_servers, **QUIET})


def broker_admin(cluster: ClusterProcesses, *arguments: str) -> Any:
    """The output of `kafkaesque broker-admin`."""
    command = [*COMMAND, "broker-admin", *arguments, "--json", "-b", cluster.bootstrap_servers]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


# -- use ----------------------------------------------------------------------------------------


def test_group_consumes_what_was_produced_over_three_brokers(cluster: ClusterProcesses) -> None:
    cluster.create_topic("spread", 6)
    leaders = [cluster.leader_of("spread", index) for index in range(6)]
    assert sorted(leaders, key=str) == [0, 0, 1, 1, 2, 2]
    values = [str(number) for number in range(600)]
    produce(cluster, "spread", values)
    members = [new_consumer(cluster, "readers") for _ in range(2)]
    for member in members:
        member.subscribe(["spread"])
    received = consume(members, len(values))
    assert sorted(int(message.value() or b"") for message in received) == list(range(600))
    assert {len(member.assignment()) for member in members} <= {3, 6, 0}
    for member in members:
        member.close()


def test_quorum_is_described(cluster: ClusterProcesses) -> None:
    quorum = broker_admin(cluster, "quorum")
    assert quorum["leader"] == cluster.controller
    assert sorted(member["id"] for member in quorum["members"]) == [0, 1, 2]
    assert {member["role"] for member in quorum["members"]} == {"leader", "voter"}


# -- one dies -----------------------------------------------------------------------------------


def test_leader_killed_under_load_loses_and_duplicates_nothing(
    cluster: ClusterProcesses, loads: list[Load]
) -> None:
    cluster.create_topic("loaded")
    load = Load(cluster, "loaded")
    loads.append(load)
    load.wait_for(200)
    leader = cluster.wait_until_leader("loaded")
    cluster.kill(leader)
    load.wait_for(200)
    assert cluster.leader_of("loaded") != leader
    load.end()
    assert load.errors == []
    stored = [int(value) for value in read_all(cluster, "loaded")]
    assert len(stored) == len(set(stored))
    assert stored == sorted(stored)
    assert set(load.acknowledged) <= set(stored)


def test_topics_are_created_after_the_controller_was_killed(cluster: ClusterProcesses) -> None:
    controller = cluster.wait_until_controller()
    cluster.kill(controller)
    admin = admin_of(cluster)
    topics = admin.create_topics([NewTopic("late", 2)], request_timeout=PATIENCE_S)
    topics["late"].result(PATIENCE_S)
    produce(cluster, "late", ["x"])
    assert cluster.wait_until_controller() != controller


def test_committed_offsets_survive_the_death_of_their_coordinator(
    cluster: ClusterProcesses,
) -> None:
    cluster.create_topic("committed")
    produce(cluster, "committed", [str(number) for number in range(10)])
    consumer = new_consumer(cluster, "careful")
    consumer.subscribe(["committed"])
    consume([consumer], 10)
    consumer.commit(offsets=[TopicPartition("committed", 0, 4)], asynchronous=False)
    admin = admin_of(cluster)
    described = admin.describe_consumer_groups(["careful"])["careful"].result(PATIENCE_S)
    cluster.kill(described.coordinator.id)
    (kept,) = consumer.committed([TopicPartition("committed", 0)], PATIENCE_S)
    assert kept.offset == 4
    consumer.commit(offsets=[TopicPartition("committed", 0, 5)], asynchronous=False)
    consumer.close()


def test_clean_stop_of_each_broker_in_turn_gives_no_error(
    cluster: ClusterProcesses, loads: list[Load]
) -> None:
    cluster.create_topic("rolling")
    load = Load(cluster, "rolling")
    loads.append(load)
    for number in range(3):
        load.wait_for(50)
        cluster.stop(number)
        assert cluster.leader_of("rolling") not in (None, number)
        load.wait_for(50)
        cluster.restart(number)
        cluster.wait_until_in_sync("rolling")
    load.end()
    assert load.errors == []
    assert sorted(load.acknowledged) == [int(value) for value in read_all(cluster, "rolling")]


def test_paused_leader_acknowledges_nothing_stale(
    cluster: ClusterProcesses, loads: list[Load]
) -> None:
    """SIGSTOP for longer than an election: records that the old leader had accepted are not lost."""
    cluster.create_topic("stalled")
    # As with any Kafka, a client waits for the answer of a broker that does not close.
    load = Load(cluster, "stalled", request_timeout_ms=1_000, socket_timeout_ms=2_000)
    loads.append(load)
    load.wait_for(100)
    leader = cluster.wait_until_leader("stalled")
    cluster.pause(leader)
    cluster.wait_until_leader("stalled", other_than=leader)
    load.wait_for(100)
    cluster.resume(leader)
    cluster.wait_until_in_sync("stalled")
    load.end()
    assert load.errors == []
    stored = [int(value) for value in read_all(cluster, "stalled")]
    assert len(stored) == len(set(stored))
    assert set(load.acknowledged) <= set(stored)


# -- more than one ------------------------------------------------------------------------------


def test_all_killed_at_once_keep_acknowledged_records(
    cluster: ClusterProcesses, loads: list[Load]
) -> None:
    cluster.create_topic("blackout")
    load = Load(cluster, "blackout")
    loads.append(load)
    load.wait_for(200)
    cluster.kill(0, 1, 2)
    cluster.restart(0, 1, 2)
    load.wait_for(20)
    load.end()
    assert load.errors == []
    stored = [int(value) for value in read_all(cluster, "blackout")]
    assert len(stored) == len(set(stored))
    assert set(load.acknowledged) <= set(stored)


def test_too_few_replicas_are_reported_and_nothing_is_acknowledged(
    cluster: ClusterProcesses,
) -> None:
    cluster.create_topic("strict", replicas={0: [0, 1, 2]}, min_insync_replicas=3)
    cluster.wait_until_in_sync("strict")
    with WireClient(cluster.address(0)) as client:
        assert client.produce("strict", [b"all"]).error_code == ErrorCode.NONE
        cluster.kill(2)
        poll_until(
            lambda: len(cluster.in_sync("strict")) == 2 or None, lambda: "two in sync", PATIENCE_S
        )
        assert client.produce("strict", [b"two"]).error_code == ErrorCode.NOT_ENOUGH_REPLICAS
        assert client.produce("strict", [b"two"], acks=1).error_code == ErrorCode.NONE
        # acks=1 guarantees one disk only: records that must survive the next kill need two.
        poll_until(
            lambda: len(client.read_all("strict")) == 2 or None, lambda: "committed", PATIENCE_S
        )
        cluster.kill(1)
        refused = client.produce("strict", [b"one"]).error_code
        assert refused in (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    cluster.restart(1, 2)
    assert read_all(cluster, "strict") == ["all", "two"]


# -- coming and going ---------------------------------------------------------------------------


def test_wiped_broker_returns_as_a_new_member_and_recovers_everything(
    cluster: ClusterProcesses,
) -> None:
    cluster.create_topic("wiped")
    produce(cluster, "wiped", [str(number) for number in range(500)])
    cluster.wipe(1)
    cluster.restart(1)
    cluster.wait_until_joined()
    cluster.wait_until_in_sync("wiped")
    cluster.kill(cluster.wait_until_leader("wiped"))
    assert read_all(cluster, "wiped") == [str(number) for number in range(500)]


def test_broker_joins_through_any_live_one_and_is_unregistered(
    cluster: ClusterProcesses, tmp_path: Path
) -> None:
    known = next(number for number in range(3) if number != cluster.controller)
    settings = {"node.id": 7, "join": cluster.address(known)}
    with BrokerProcess(tmp_path, settings) as fourth:
        poll_until(
            lambda: _ids(cluster) == [0, 1, 2, 7] or None, lambda: "a fourth broker", PATIENCE_S
        )
        cluster.create_topic("moved", replicas={0: [0, 7, 1]})
        poll_until(
            lambda: sorted(cluster.in_sync("moved")) == [0, 1, 7] or None,
            lambda: f"a replica on broker 7, not {cluster.in_sync('moved')}",
            PATIENCE_S,
        )
        assert fourth.stop() == 0
    assert broker_admin(cluster, "unregister", "7", "--yes")["result"] == "unregistered"
    poll_until(
        lambda: {m["id"] for m in broker_admin(cluster, "quorum")["members"]} == {0, 1, 2} or None,
        lambda: "three voters",
        PATIENCE_S,
    )
    admin = admin_of(cluster)
    admin.delete_topics(["moved"])["moved"].result(PATIENCE_S)


def _ids(cluster: ClusterProcesses) -> list[int]:
    return [broker["id"] for broker in broker_admin(cluster, "brokers")["brokers"]]


def test_second_broker_with_a_node_id_that_is_up_is_refused(
    cluster: ClusterProcesses, tmp_path: Path
) -> None:
    settings = {"node.id": 1, "join": cluster.address(0)}
    with pytest.raises(BrokerNotReady, match="Another broker is registered with that broker id"):
        BrokerProcess(tmp_path, settings).start()
    assert _ids(cluster) == [0, 1, 2]


def test_broker_of_another_cluster_is_refused(cluster: ClusterProcesses, tmp_path: Path) -> None:
    stranger = BrokerProcess(tmp_path, {"node.id": 9})
    with stranger:
        pass
    stranger.settings["join"] = cluster.address(0)
    with pytest.raises(BrokerNotReady, match="cluster"):
        stranger.start()
    assert _ids(cluster) == [0, 1, 2]


# -- moving -------------------------------------------------------------------------------------


def test_partition_is_reassigned_under_load(cluster: ClusterProcesses, loads: list[Load]) -> None:
    cluster.create_topic("reassigned", replicas={0: [0, 1]})
    load = Load(cluster, "reassigned")
    loads.append(load)
    load.wait_for(100)
    broker_admin(cluster, "reassign", "reassigned:0=1,2")
    poll_until(
        lambda: sorted(cluster.in_sync("reassigned")) == [1, 2] or None,
        lambda: f"replicas 1 and 2, not {cluster.in_sync('reassigned')}",
        PATIENCE_S,
    )
    load.wait_for(100)
    load.end()
    assert broker_admin(cluster, "reassignments")["reassignments"] == []
    assert cluster.wait_until_leader("reassigned") in (1, 2)
    assert load.errors == []
    assert sorted(load.acknowledged) == [int(value) for value in read_all(cluster, "reassigned")]


def test_preferred_leader_is_elected_on_request(cluster: ClusterProcesses) -> None:
    cluster.create_topic("preferred", replicas={0: [2, 0, 1]})
    cluster.stop(2)
    cluster.restart(2)
    cluster.wait_until_in_sync("preferred")
    assert cluster.leader_of("preferred") != 2
    admin = admin_of(cluster)
    elected = admin.elect_leaders(ElectionType.PREFERRED, [TopicPartition("preferred", 0)])
    assert list(elected.result(PATIENCE_S).values()) == [None]
    assert cluster.wait_until_leader("preferred") == 2
