"""A cluster in this process: kills, pauses, partitions and wipes take effect, and nothing remains."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafkaesque.model.errors import ErrorCode, KafkaError
from kafkaesque.testing import BrokerFailed, Cluster
from kafkaesque.testing.client import SharedClient
from kafkaesque.testing.records import fields_of


@pytest.fixture(scope="module")
def shared() -> Iterator[Cluster]:
    with Cluster(3) as cluster:
        yield cluster


@pytest.fixture
def cluster(shared: Cluster) -> Iterator[Cluster]:
    yield shared
    shared.mend()
    shared.check()


def produce(cluster: Cluster, topic: str, *values: str) -> None:
    with SharedClient(cluster.bootstrap_servers) as client:
        client.produce(topic, [fields_of(value) for value in values], 20)


def read(cluster: Cluster, topic: str) -> list[str | None]:
    """All records of a topic with one partition."""
    with SharedClient(cluster.bootstrap_servers) as client:
        return [record.text for record in client.read(topic, {0: 0}, float("inf"), count=None)]


def test_records_survive_the_death_of_the_leader(cluster: Cluster) -> None:
    cluster.create_topic("survives")
    produce(cluster, "survives", "before")
    leader = cluster.wait_until_leader("survives")
    cluster.kill(leader)
    assert cluster.running == [number for number in range(3) if number != leader]
    assert cluster.wait_until_leader("survives") != leader
    produce(cluster, "survives", "after")
    cluster.restart(leader)
    cluster.wait_until_in_sync("survives")
    assert sorted(cluster.in_sync("survives")) == [0, 1, 2]
    assert read(cluster, "survives") == ["before", "after"]


def test_kill_is_not_a_clean_stop_and_stop_is(
    cluster: Cluster,
) -> None:
    cluster.kill(1)
    assert not (cluster.data(1) / "clean-shutdown").exists()
    cluster.restart(1)
    cluster.stop(1)
    assert (cluster.data(1) / "clean-shutdown").exists()


def test_stopped_leader_transfers_leadership(cluster: Cluster) -> None:
    cluster.create_topic("handed", partitions=3)
    leader = cluster.wait_until_leader("handed", 2)
    cluster.stop(leader)
    assert all(cluster.leader_of("handed", index) not in (None, leader) for index in range(3))


def test_paused_leader_is_replaced_and_returns(cluster: Cluster) -> None:
    cluster.create_topic("paused")
    leader = cluster.wait_until_leader("paused")
    cluster.pause(leader)
    assert cluster.wait_until_leader("paused", other_than=leader) != leader
    cluster.resume(leader)
    cluster.wait_until_in_sync("paused")
    assert leader in cluster.in_sync("paused")


def test_paused_broker_can_be_killed(cluster: Cluster) -> None:
    cluster.pause(0)
    cluster.kill(0)
    assert cluster.running == [1, 2]


@pytest.mark.parametrize("one_way", [False, True])
def test_controller_cut_off_from_all_others_is_replaced(cluster: Cluster, one_way: bool) -> None:
    controller = cluster.wait_until_controller()
    others = [number for number in range(3) if number != controller]
    cluster.partition(controller, others, one_way=one_way)
    assert cluster.wait_until_controller(other_than=controller) in others
    cluster.heal()
    cluster.wait_until_joined()


def test_cut_outlasts_a_restart(cluster: Cluster) -> None:
    cluster.kill(0)
    controller = cluster.wait_until_controller()
    # Not cut off from the controller: only it decides which brokers are up.
    cluster.partition(0, 3 - controller)
    cluster.restart(0)
    with pytest.raises(TimeoutError, match="all brokers in the cluster"):
        cluster.wait_until_joined(within=0.2)


def test_wiped_broker_recovers_all_records(cluster: Cluster) -> None:
    cluster.create_topic("wiped")
    produce(cluster, "wiped", "kept")
    cluster.wipe(2)
    assert not cluster.data(2).exists()
    cluster.restart(2)
    cluster.wait_until_in_sync("wiped")
    cluster.kill(0)
    cluster.wait_until_leader("wiped")
    assert read(cluster, "wiped") == ["kept"]


def test_all_brokers_killed_at_once_keep_acknowledged_records(
    cluster: Cluster,
) -> None:
    cluster.create_topic("kept")
    produce(cluster, "kept", "1", "2")
    cluster.kill(0, 1, 2)
    assert cluster.running == []
    assert (cluster.leader_of("kept"), cluster.controller) == (None, None)
    cluster.restart(0, 1, 2)
    cluster.wait_until_leader("kept")
    assert read(cluster, "kept") == ["1", "2"]


def test_topic_is_created_with_the_given_settings(cluster: Cluster) -> None:
    cluster.create_topic("wide", partitions=4, replication_factor=2, retention_ms=60_000)
    cluster.wait_until_in_sync("wide")
    assert [len(cluster.in_sync("wide", index)) for index in range(4)] == [2] * 4
    with pytest.raises(KafkaError) as refused:
        cluster.create_topic("wider", replication_factor=4)
    assert refused.value.code is ErrorCode.INVALID_REPLICATION_FACTOR


def test_unknown_broker_and_broker_that_is_down_are_named(cluster: Cluster) -> None:
    with pytest.raises(ValueError, match=r"no broker 3: the brokers are 0\.\.2"):
        cluster.kill(3)
    cluster.kill(1)
    cluster.kill(1)
    with pytest.raises(RuntimeError, match="broker 1 is not running"):
        cluster.pause(1)


def test_cluster_of_one_and_of_two(tmp_path: Path) -> None:
    for count in (1, 2):
        with Cluster(count) as cluster:
            assert cluster.controller == 0
            cluster.create_topic("t")
            cluster.wait_until_in_sync("t")
            assert len(cluster.in_sync("t")) == count


def test_given_directory_is_kept_and_reused(tmp_path: Path) -> None:
    for expected in ([], ["first"]):
        with Cluster(2, data=tmp_path) as cluster:
            if not expected:
                cluster.create_topic("t")
                produce(cluster, "t", "first")
            cluster.wait_until_leader("t")
            assert read(cluster, "t") == ["first"]
    assert (tmp_path / "broker-0" / "clean-shutdown").exists()


def test_closed_cluster_leaves_no_thread_and_no_directory() -> None:
    before = set(threading.enumerate())
    with Cluster(2) as cluster:
        directory = cluster.data(0).parent
    assert not directory.exists()
    assert set(threading.enumerate()) <= before
    with pytest.raises(RuntimeError, match="not running"):
        _ = cluster.bootstrap_servers


def test_broker_that_cannot_start_is_explained() -> None:
    with pytest.raises(BrokerFailed, match=r"Unknown broker setting 'no\.such'"):
        Cluster(2, settings={"no.such": 1}).start()


@pytest.mark.parametrize("ending", ["del c", "pass"])
def test_cluster_that_was_not_closed_ends_silently(ending: str) -> None:
    program = (
        "from kafkaesque.testing import Cluster; c = Cluster(2).start(); "
        f"print(c.data(0).parent); {ending}"
    )
    run = subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert not Path(run.stdout.strip()).exists()
    assert run.stderr == ""
