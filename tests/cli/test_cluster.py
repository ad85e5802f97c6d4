"""How `kafkaesque cluster` starts its brokers; that they run is a story (tests/stories)."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafkaesque.cli.broker_services import (
    _found_no_more,
    broker_services,
    consecutive_ports,
    shared_settings,
)
from kafkaesque.cli.main import run
from kafkaesque.testing.reserved_ports import ReservedPorts

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
    _found_no_more(services)
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


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--set", "node.id=4"], "cannot be the same for several brokers"),
        (["--set", "num.partition=4"], "did you mean num.partitions?"),
        (["--port", "65535"], "no 3 ports from 65535 on"),
        (["-n", "0"], "0 is not in the range"),
    ],
)
def test_wrong_usage_is_explained(
    arguments: list[str], text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["cluster", *arguments]) == 2
    assert text in capsys.readouterr().err
