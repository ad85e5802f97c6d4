"""A broker that restarts checks that its seeds belong to its cluster."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from kafkaesque.testing import Broker, BrokerFailed


def test_seed_of_another_cluster_refuses_a_broker_that_has_data(tmp_path: Path) -> None:
    with Broker(data=tmp_path, settings={"node.id": 1}):
        pass
    with Broker() as other:
        settings = {"node.id": 1, "join": other.bootstrap_servers}
        with pytest.raises(BrokerFailed, match="the data directory belongs to cluster"):
            Broker(data=tmp_path, settings=settings).start()


def test_seed_that_is_down_or_silent_delays_no_start(tmp_path: Path) -> None:
    with Broker(data=tmp_path, settings={"node.id": 1}):
        pass
    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent_address = f"127.0.0.1:{silent.getsockname()[1]}"
        with socket.create_server(("127.0.0.1", 0)) as gone:
            gone_address = f"127.0.0.1:{gone.getsockname()[1]}"
        settings = {"node.id": 1, "join": [silent_address, gone_address]}
        with Broker(data=tmp_path, settings=settings) as broker:
            broker.create_topic("t")
