"""`kafkaesque up` with its services: on another Kafka, through a restart, and when it is killed."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.stories.test_up import COMMAND, is_running, type_in
from tests.waiting import eventually

from kafkaesque.testing import Broker

START_SECONDS_MAX = 240
PASSWORD = {"KAFKAESQUE_CHAT_PASSWORD": "metamorphosis"}

pytestmark = pytest.mark.timeout(900)


class Up:
    """A running `up`; `processes` are those of its control API, by name."""

    def __init__(self, process: subprocess.Popen[bytes], data: Path) -> None:
        self.process = process
        self.data = data

    @property
    def processes(self) -> dict[str, Any]:
        status = type_in("status", "--json", "--data", str(self.data))
        return {
            item["name"]: item for item in json.loads(status.stdout or "{}").get("processes", ())
        }

    def wait_until_running(self) -> dict[str, Any]:
        """On a busy machine a service may need its second attempt."""

        def all_of_them() -> dict[str, Any]:
            found = self.processes
            return found if all(item["state"] == "running" for item in found.values()) else {}

        return eventually(all_of_them, "every service runs", START_SECONDS_MAX)


@contextmanager
def running_up(data: Path, *options: str) -> Iterator[Up]:
    process = subprocess.Popen(
        [*COMMAND, "up", "--json", "--no-spark", "--no-source", "--brokers", "1",
         "--port", "0", "--http-port", "0", "--data", str(data), *options],
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        assert process.stdout.readline(), "up ended before it was up"
        yield Up(process, data)
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
            assert process.wait(120) == 0
    finally:
        process.kill()
        process.communicate()


def log_in(gateway: str, *words: str) -> None:
    """Logs in with a chat client that gets no input; a busy machine may need a second attempt."""

    def is_in() -> bool:
        done = type_in("chat", "client", "--gateway", gateway, "--name", "gregor", "--plain", *words,
                       **PASSWORD)  # fmt: skip
        return done.returncode == 0

    eventually(is_in, "gregor is in", 120)


def test_account_created_before_a_restart_can_log_in(tmp_path: Path) -> None:
    with running_up(tmp_path) as up:
        found = up.wait_until_running()
        log_in(found["gateway-0"]["facts"]["tcp"], "--register")
    assert [pid for item in found.values() if is_running(pid := item["pid"])] == []
    assert not (tmp_path / "control.json").exists()
    with running_up(tmp_path) as up:
        found = up.wait_until_running()
        log_in(found["gateway-1"]["facts"]["tcp"])


def test_services_run_on_another_kafka_and_none_outlives_a_killed_up(tmp_path: Path) -> None:
    with Broker() as kafka:
        engine = f"kafka={kafka.bootstrap_servers}"
        with running_up(tmp_path, "--engine", engine) as up:
            found = up.wait_until_running()
            log_in(found["gateway-0"]["facts"]["tcp"], "--register")
            # The services write to the other Kafka; our broker only has the coordination service.
            listed = type_in("topic", "list", "--json", "-b", kafka.bootstrap_servers).stdout
            assert "gw.cmd.v1" in listed
            own = type_in("topic", "list", "--json", "-b", found["broker-0"]["facts"]["kafka"])
            assert "gw.cmd.v1" not in own.stdout
            up.process.kill()
            pids = [item["pid"] for item in found.values()]
            eventually(lambda: not any(map(is_running, pids)), "every process ended", 120)
