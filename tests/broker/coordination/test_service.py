"""Coordination and the text protocol as parts of a broker: settings, addresses, metrics, restarts."""

from __future__ import annotations

import json
import urllib.request
from pathlib import Path

import pytest
from tests.conformance_zookeeper.opened import opened
from tests.conformance_zookeeper.raw import RawClient, create_body
from tests.waiting import eventually

from kafkaesque.broker.server.addresses import guarded_address
from kafkaesque.lab.harness.cluster import BrokerCluster
from kafkaesque.model.errors import InvalidConfig
from kafkaesque.model.settings import broker_config
from kafkaesque.testing.broker_process import BrokerProcess
from kafkaesque.testing.reserved_ports import HOST, ReservedPorts
from kafkaesque.up.ports import side_ports

VARIABLE = "KAFKAESQUE_COORDINATION_LISTENER"
BOTH = {"coordination.listener": "127.0.0.1:0", "text.listener": "127.0.0.1:0"}


def metrics(broker: BrokerProcess) -> dict[str, float]:
    with urllib.request.urlopen(f"http://{broker.http_address}/metrics", timeout=10) as page:
        lines = page.read().decode().splitlines()
    rows = (line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
    return {name: float(value) for name, value in rows}


def test_listeners_are_reported_and_counted_and_the_tree_survives(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path, BOTH) as broker:
        facts = json.loads((broker.data / "broker.json").read_text())
        assert facts["coordination"] == broker.facts["coordination"]
        assert facts["text"] == broker.facts["text"]
        with opened(broker.facts["coordination"]) as client:
            client.create("/kept", b"x")
            client.create("/mine", b"", ephemeral=True)
            shown = metrics(broker)
        assert shown["kafkaesque_coordination_sessions"] == 1
        assert shown["kafkaesque_coordination_connections"] == 1
        assert shown["kafkaesque_coordination_ephemeral_nodes"] == 1
        assert shown["kafkaesque_coordination_is_leader"] == 1
        assert shown["kafkaesque_coordination_packets_received_total"] > 0
        assert shown["kafkaesque_text_connections"] == 0
    with BrokerProcess(tmp_path, BOTH) as again, opened(again.facts["coordination"]) as client:
        assert client.get("/kept")[0] == b"x"
        assert client.exists("/mine") is None


def test_without_listeners_there_are_none_and_the_figures_are_there(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path) as broker:
        assert "coordination" not in broker.facts
        assert "text" not in broker.facts
        shown = metrics(broker)
        assert shown["kafkaesque_coordination_connections"] == 0
        assert shown["kafkaesque_coordination_is_leader"] == 1


def test_listener_on_a_public_address_is_rejected_unless_insecure_is_set() -> None:
    config = broker_config({"log.dirs": "x"})
    with pytest.raises(InvalidConfig, match=r"coordination\.listener"):
        guarded_address(config, "0.0.0.0:2181", "coordination.listener")
    insecure = broker_config({"log.dirs": "x", "insecure": "true"})
    assert guarded_address(insecure, "0.0.0.0:2181", "coordination.listener").port == 2181


@pytest.mark.parametrize(
    ("kafka_port", "coordination", "text"),
    [(9092, 2181, 9100), (9094, 2183, 9102), (19092, 12181, 19100), (0, 0, 0), (7000, 0, 7008)],
)
def test_side_ports_are_as_far_from_theirs_as_the_kafka_port(
    kafka_port: int, coordination: int, text: int
) -> None:
    assert side_ports(kafka_port) == {"coordination-listen": coordination, "text-listen": text}


@pytest.mark.story
def test_sessions_end_also_when_the_leader_has_no_listener(tmp_path: Path) -> None:
    ports = ReservedPorts(1)
    address = f"{HOST}:{ports.numbers[0]}"
    target = BrokerCluster(
        tmp_path, environment=lambda node: {VARIABLE: address} if node == 1 else {}
    )
    try:
        target.bring_up(0, 1, 2)
        with RawClient(address) as silent:
            silent.connect(4000)
            assert silent.ask(1, create_body("/brief", b"", flags=1)).code == 0
        with opened(address) as client:
            # A follower, or an observer as long as the cluster has not given it a vote.
            assert "Mode: leader" not in client.command(b"srvr")
            assert client.exists("/brief") is not None
            eventually(lambda: client.exists("/brief") is None, within_s=20)
    finally:
        target.close()
        ports.close()
