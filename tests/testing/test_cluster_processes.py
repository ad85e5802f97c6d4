"""A cluster of processes: signals take effect, and the brokers' reports are combined."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kafkaesque.testing import ClusterProcesses
from kafkaesque.testing.broker_process import BrokerNotReady
from kafkaesque.testing.cluster_processes import TopicRefused


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterProcesses]:
    with ClusterProcesses(3, tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster


@pytest.fixture
def cluster(shared: ClusterProcesses) -> Iterator[ClusterProcesses]:
    yield shared
    shared.mend()


def test_paused_process_is_replaced_and_returns(cluster: ClusterProcesses) -> None:
    cluster.create_topic("t", replicas={0: [0, 1, 2]})
    assert cluster.wait_until_leader("t") == 0
    cluster.pause(0)
    assert cluster.wait_until_leader("t", other_than=0) in (1, 2)
    cluster.resume(0)
    cluster.wait_until_in_sync("t")
    assert sorted(cluster.in_sync("t")) == [0, 1, 2]


def test_killed_and_wiped_process_returns_on_its_port(cluster: ClusterProcesses) -> None:
    address, pid = cluster.address(1), cluster.process(1).pid
    cluster.wipe(1)
    assert cluster.running == [0, 2]
    assert not cluster.process(1).data.exists()
    cluster.restart(1)
    assert cluster.process(1).bootstrap_servers == address
    assert cluster.process(1).pid != pid
    cluster.wait_until_joined()


def test_refused_topic_reports_the_reason(cluster: ClusterProcesses) -> None:
    with pytest.raises(TopicRefused, match="INVALID_REPLICATION_FACTOR"):
        cluster.create_topic("wide", replication_factor=4)


def test_process_that_does_not_start_shows_its_log(tmp_path: Path) -> None:
    with pytest.raises(BrokerNotReady, match=r"no setting 'no\.such'"):
        ClusterProcesses(1, tmp_path, settings={"no.such": 1}).start()
