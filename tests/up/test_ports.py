"""The ports that the platform uses. A port in use is reported with its process and our option."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from kafkaesque.testing.reserved_ports import HOST, ReservedPorts
from kafkaesque.up.brokers import broker_services
from kafkaesque.up.ports import (
    GATEWAY_PORTS,
    Port,
    PortsInUse,
    broker_ports,
    choose_ports,
    is_free,
    listening_inodes,
    process_listening_on,
    require_free,
    service_ports,
)

COMMAND = [sys.executable, "-m", "kafkaesque.cli.main"]
DEFAULTS = {
    "broker-0, Kafka": (9092, "--port"),
    "broker-0, coordination": (2181, "--port"),
    "broker-0, text protocol": (9100, "--port"),
    "broker-0, metrics": (9644, "--http-port"),
    "broker-1, Kafka": (9093, "--port"),
    "broker-1, coordination": (2182, "--port"),
    "broker-1, text protocol": (9101, "--port"),
    "broker-1, metrics": (9645, "--http-port"),
    "gateway-0": (7000, "--gateway-port"),
    "gateway-1": (7010, "--gateway-port"),
    "console": (8080, "--console-port"),
    "chat page": (8090, "--chat-port"),
    "mail catcher": (1025, "--mail-port"),
}


def all_ports(tmp_path: Path) -> list[Port]:
    brokers = broker_services(tmp_path, 9092, 2, (), ReservedPorts(), 9644)
    return [*broker_ports(brokers), *service_ports(choose_ports(9092, {}, ReservedPorts()))]


def test_every_port_is_known_with_its_option(tmp_path: Path) -> None:
    found = {port.what: (port.number, port.option) for port in all_ports(tmp_path)}
    assert found == DEFAULTS


@pytest.mark.parametrize("what", DEFAULTS)
def test_each_port_in_use_is_named_with_what_to_do(what: str, tmp_path: Path) -> None:
    number, option = DEFAULTS[what]
    with pytest.raises(PortsInUse) as refused:
        require_free(all_ports(tmp_path), lambda port: port != number, lambda _port: "java, pid 7")
    assert str(refused.value) == f"{HOST}:{number} ({what}) is in use by java, pid 7"
    assert f"`{option} PORT`" in refused.value.fix


def test_all_ports_in_use_are_named_at_once(tmp_path: Path) -> None:
    with pytest.raises(PortsInUse) as refused:
        require_free(all_ports(tmp_path), lambda _port: False, lambda _port: None)
    assert str(refused.value).count("is in use") == len(DEFAULTS)


def test_port_with_a_listener_is_not_free() -> None:
    with socket.create_server((HOST, 0)) as taken:
        port = taken.getsockname()[1]
        assert not is_free(port)
    assert is_free(port)


def test_ports_move_with_the_brokers_or_by_their_own_option() -> None:
    assert choose_ports(19092, {}, ReservedPorts())[8080] == 18080
    moved = choose_ports(19092, {"--console-port": 8081, "--gateway-port": 7100}, ReservedPorts())
    assert moved[8080] == 8081
    assert [moved[port] for port in GATEWAY_PORTS] == [7100, 7110]
    assert moved[8090] == 18090
    with ReservedPorts() as free:
        chosen = choose_ports(9092, {"--gateway-port": 0, "--mail-port": 0}, free)
        assert {chosen[7000], chosen[7010], chosen[1025]} == set(free.numbers)
    assert len(set(chosen.values())) == len(chosen)
    assert not {7000, 7010, 1025} & set(chosen.values())


@pytest.mark.parametrize(
    ("option", "what"),
    [
        ("--port", "broker-0, Kafka"),
        ("--http-port", "broker-0, metrics"),
        ("--gateway-port", "gateway-0"),
        ("--console-port", "console"),
        ("--chat-port", "chat page"),
        ("--mail-port", "mail catcher"),
    ],
)
def test_up_refuses_before_anything_starts(option: str, what: str, tmp_path: Path) -> None:
    with socket.create_server((HOST, 0)) as taken:
        port = taken.getsockname()[1]
        asked = {"--port": "0", "--http-port": "0"} | {option: str(port)}
        words = [word for pair in asked.items() for word in pair]
        done = subprocess.run(
            [*COMMAND, "up", "--data", str(tmp_path), *words, "--no-spark"],
            capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip
    assert done.returncode == 1, done.stdout
    assert f"{HOST}:{port} ({what}) is in use" in done.stderr
    assert f"pid {os.getpid()}" in done.stderr
    assert f"`{option} PORT`" in done.stderr
    assert not (tmp_path / "logs").exists()


TABLE = """  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:2384 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 1234 1
   1: 0100007F:2384 0100007F:9999 01 00000000:00000000 00:00000000 00000000     0        0 777 1
   2: 0100007F:0016 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 55 1
"""


def test_only_listening_sockets_of_the_port_count() -> None:
    assert listening_inodes(TABLE, 9092) == {"1234"}
    assert listening_inodes(TABLE, 9093) == set()


def test_without_proc_nothing_is_known(tmp_path: Path) -> None:
    assert process_listening_on(9092, tmp_path) is None


@pytest.mark.skipif(sys.platform != "linux", reason="there is no /proc: run it on Linux")
def test_our_own_listener_is_found_by_pid() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        found = process_listening_on(server.getsockname()[1])
    assert found is not None
    assert found.endswith(f"pid {os.getpid()}")
