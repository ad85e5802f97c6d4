"""Command lines of the brokers of a cluster. tests/stories runs them."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafkaesque.testing.reserved_ports import ReservedPorts
from kafkaesque.up.brokers import (
    _join_from_now_on,
    broker_services,
    shared_settings,
)
from kafkaesque.up.ports import consecutive_ports

PORTS = [9092, 9093, 9094]


def option(command: list[str], name: str) -> str | None:
    return command[command.index(name) + 1] if name in command else None


def joins(tmp_path: Path, free: ReservedPorts) -> list[str | None]:
    return [
        option(list(service.command), "--join")
        for service in broker_services(tmp_path, PORTS[0], len(PORTS), [], free)
    ]


def test_first_broker_founds_a_new_cluster_and_the_others_join(
    tmp_path: Path, free: ReservedPorts
) -> None:
    assert joins(tmp_path, free) == [
        None,
        "127.0.0.1:9092,127.0.0.1:9094",
        "127.0.0.1:9092,127.0.0.1:9093",
    ]


def test_nobody_founds_where_there_is_a_cluster(tmp_path: Path, free: ReservedPorts) -> None:
    (tmp_path / "broker-1").mkdir()
    assert joins(tmp_path, free)[0] == "127.0.0.1:9093,127.0.0.1:9094"


def test_founder_joins_once_the_cluster_stands(tmp_path: Path, free: ReservedPorts) -> None:
    services = broker_services(tmp_path, PORTS[0], len(PORTS), [], free)
    for service, port in zip(services, PORTS, strict=True):
        service.facts = {"kafka": f"127.0.0.1:{port}"}
    _join_from_now_on(services)
    assert option(list(services[0].command), "--join") == "127.0.0.1:9093,127.0.0.1:9094"


def test_every_broker_has_its_own_directory_port_and_log(
    tmp_path: Path, free: ReservedPorts
) -> None:
    services = broker_services(tmp_path, PORTS[0], len(PORTS), ["num.partitions=4"], free)
    for number, service in enumerate(services):
        command = list(service.command)
        assert option(command, "--node-id") == str(number)
        assert option(command, "--data") == str(tmp_path / f"broker-{number}")
        assert option(command, "--listen") == f"127.0.0.1:{PORTS[number]}"
        assert option(command, "--set") == "num.partitions=4"
        assert service.log == tmp_path / "logs" / f"broker-{number}.log"


@pytest.mark.parametrize(
    ("count", "settings", "expected"),
    [
        (1, {}, []),
        (2, {}, []),
        (3, {}, ["default.replication.factor=3", "min.insync.replicas=2"]),
        (5, {"min.insync.replicas": "1"}, ["default.replication.factor=3"]),
    ],
)
def test_topics_are_replicated_from_three_brokers_on(
    count: int, settings: dict[str, str], expected: list[str]
) -> None:
    assert shared_settings(count, settings, ["a=b"]) == [*expected, "a=b"]


def test_ports_follow_the_first_or_are_free(free: ReservedPorts) -> None:
    assert consecutive_ports(19092, 3, free) == [19092, 19093, 19094]
    assert free.numbers == ()
    assert len(set(consecutive_ports(0, 3, free))) == 3
    assert len(free.numbers) == 3, "held as long as the brokers may want to listen there"
