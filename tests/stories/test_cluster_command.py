"""`kafkaesque cluster`: one command starts three brokers, one signal ends all processes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.stories.test_up import COMMAND, is_running
from tests.stories.wire_client import WireClient
from tests.waiting import eventually

from kafkaesque.model.errors import ErrorCode

START = [*COMMAND, "cluster", "-n", "3", "--port", "0"]


@pytest.fixture
def supervisor(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(
        [*START, "--json", "--data", str(tmp_path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    yield process
    process.kill()
    process.communicate()


def read_answer(process: subprocess.Popen[bytes]) -> Any:
    assert process.stdout is not None
    return json.loads(process.stdout.readline())


def test_three_brokers_serve_one_is_restarted_and_ctrl_c_leaves_no_process(
    supervisor: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    ready = read_answer(supervisor)
    services = ready["services"]
    assert [service["name"] for service in services] == ["broker-0", "broker-1", "broker-2"]
    assert ready["bootstrap_servers"] == ",".join(service["kafka"] for service in services)
    with WireClient(services[0]["kafka"]) as client:
        client.create_topic("t")
    killed = services[1]
    os.kill(int(killed["pid"]), signal.SIGKILL)
    address_file = tmp_path / "broker-1" / "broker.json"

    def restarted() -> bool:
        facts = json.loads(address_file.read_text() or "{}")
        return bool(facts) and facts["pid"] != int(killed["pid"])

    eventually(restarted, "another broker 1 serves")
    restarted_pid = json.loads(address_file.read_text())["pid"]
    assert json.loads(address_file.read_text())["kafka"] == killed["kafka"]
    supervisor.send_signal(signal.SIGINT)
    assert supervisor.wait(60) == 0
    for pid in [restarted_pid, *(int(service["pid"]) for service in services)]:
        assert not is_running(pid)
    for number in range(3):
        assert (tmp_path / f"broker-{number}" / "clean-shutdown").exists()


def test_cluster_restarts_with_its_data_on_other_ports(tmp_path: Path) -> None:
    for turn in range(2):
        process = subprocess.Popen(
            [*START, "--data", str(tmp_path)],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert process.stdout is not None
        lines = []
        while not (line := process.stdout.readline()).startswith("ready "):
            assert line, lines
            lines.append(line)
        assert [text.split()[0] for text in lines] == ["broker-0", "broker-1", "broker-2"]
        address = line.split("=", 1)[1].split(",")[turn]
        with WireClient(address) as client:
            if turn == 0:
                client.create_topic("t", partitions=3)
            else:
                eventually(lambda: _is_written(client), "a leader of t-0 is here or elsewhere")
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
        process.stdout.close()


def _is_written(client: WireClient) -> bool:
    return any(
        client.produce("t", [b"x"], partition=index).error_code == ErrorCode.NONE
        for index in range(3)
    )


def test_port_in_use_is_explained_and_no_process_remains(tmp_path: Path) -> None:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = subprocess.run(
            [*COMMAND, "cluster", "-n", "2", "--data", str(tmp_path), "--port", str(port - 1)],
            capture_output=True,
            timeout=60,
            check=False,
            text=True,
        )
    assert done.returncode == 1
    assert "address is in use" in done.stderr
    addresses = list(tmp_path.glob("broker-*/broker.json"))
    assert addresses == []
