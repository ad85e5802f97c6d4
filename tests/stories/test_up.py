"""`kafkaesque up`: one command starts everything, one signal ends all processes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.stories.wire_client import WireClient
from tests.waiting import eventually

from kafkaesque.model.errors import ErrorCode
from kafkaesque.testing.broker_process import BrokerProcess

COMMAND = [sys.executable, "-m", "kafkaesque.cli.main"]


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):  # the latter if it ends between open and read
        return False


def type_in(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *words], capture_output=True, text=True, timeout=180, check=False,
        input="", env=os.environ | environment,
    )  # fmt: skip


@pytest.fixture
def platform(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(
        [
            *COMMAND,
            "up",
            "--json",
            "--data",
            str(tmp_path),
            "--port",
            "0",
            "--http-port",
            "0",
            "--brokers",
            "1",
            "--only-brokers",
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    yield process
    process.kill()
    process.communicate()


def services(platform: subprocess.Popen[bytes]) -> dict[str, Any]:
    assert platform.stdout is not None
    found = json.loads(platform.stdout.readline())["services"]
    return {service["name"]: service for service in found}


def test_up_serves_and_ctrl_c_leaves_no_process(platform: subprocess.Popen[bytes]) -> None:
    broker = services(platform)["broker-0"]
    with WireClient(broker["kafka"]) as client:
        client.create_topic("t")
        assert client.produce("t", [b"x"]).error_code == ErrorCode.NONE
    platform.send_signal(signal.SIGINT)
    assert platform.wait(30) == 0
    assert not is_running(int(broker["pid"]))


def test_children_of_a_killed_supervisor_end(platform: subprocess.Popen[bytes]) -> None:
    broker = services(platform)["broker-0"]
    platform.kill()
    eventually(lambda: not is_running(int(broker["pid"])), "the broker ended")


def test_killed_broker_is_restarted_with_its_data(
    platform: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    broker = services(platform)["broker-0"]
    with WireClient(broker["kafka"]) as client:
        client.create_topic("t")
        client.produce("t", [b"kept"])
    address_file = tmp_path / "broker-0" / "broker.json"
    os.kill(int(broker["pid"]), signal.SIGKILL)

    def restarted() -> bool:
        facts = json.loads(address_file.read_text() or "{}")
        return bool(facts) and facts["pid"] != int(broker["pid"])

    eventually(restarted, "another broker serves")
    with WireClient(json.loads(address_file.read_text())["kafka"]) as client:
        assert [record.value for record in client.read_all("t")] == [b"kept"]


def test_port_in_use_is_explained(broker: BrokerProcess, tmp_path: Path) -> None:
    port = broker.bootstrap_servers.rsplit(":", 1)[1]
    done = type_in("up", "--data", str(tmp_path / "up"), "--port", port, "--http-port", "0",
                   "--only-brokers")  # fmt: skip
    assert done.returncode == 1
    assert f"127.0.0.1:{port} (broker-0, Kafka) is in use" in done.stderr
    assert "`--port PORT`" in done.stderr


def test_second_up_on_the_same_data_leaves_the_first_alone(
    platform: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    broker = services(platform)["broker-0"]
    control = (tmp_path / "control.json").read_bytes()
    for _ in range(2):
        done = type_in("up", "--data", str(tmp_path), "--port", "0", "--only-brokers")
        assert done.returncode == 1
        assert f"process {platform.pid}" in done.stderr
        assert f"kafkaesque status --data {tmp_path}" in done.stderr
    assert (tmp_path / "control.json").read_bytes() == control
    status = json.loads(type_in("status", "--json", "--data", str(tmp_path)).stdout)
    assert [item["pid"] for item in status["processes"]] == [int(broker["pid"])]


def test_broker_command_explains_a_bad_setting() -> None:
    done = type_in("broker", "--set", "num.partition=4")
    assert done.returncode == 2
    assert "did you mean num.partitions?" in done.stderr
