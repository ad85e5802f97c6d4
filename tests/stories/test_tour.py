"""docs/TOUR.md: its commands are run exactly as written, on a complete platform.

`...` in an expected output matches anything. A command is repeated if it only reads and its output is not
there yet, or if it could not connect.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from tests.waiting import eventually

ROOT = Path(__file__).resolve().parents[2]
TOUR = ROOT / "docs" / "TOUR.md"
BIN = Path(sys.executable).parent
COMMAND = [sys.executable, "-m", "kafkaesque.cli.main"]
START_SECONDS_MAX = 240
STEP_SECONDS_MAX = 90
COMMAND_SECONDS_MAX = 180
CANNOT_CONNECT = 3
LOOKS = re.compile(
    r"topic describe|group describe|status|timer ls|dlq ls|coord ls|curl|top |consume|chat client"
)
CHANGES = re.compile(r"--execute|kill|--group|--register")

pytestmark = [pytest.mark.story, pytest.mark.timeout(600)]


class Step(NamedTuple):
    command: str
    expected: str

    @property
    def may_be_repeated(self) -> bool:
        return bool(LOOKS.search(self.command)) and not CHANGES.search(self.command)

    def is_met_by(self, output: str) -> bool:
        pieces = map(re.escape, self.expected.split("..."))
        return re.fullmatch(".*".join(pieces), output.strip(), re.DOTALL) is not None


def steps(text: str) -> list[Step]:
    found = []
    for block in re.findall(r"^```console\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, expected = part.partition("\n")
            found.append(Step(command, expected.strip()))
    return found


STEPS = steps(TOUR.read_text())


class Platform(NamedTuple):
    environment: dict[str, str]


@pytest.fixture
def platform(tmp_path: Path) -> Iterator[Platform]:
    data = tmp_path / "data"
    with (tmp_path / "up.log").open("wb") as log:
        process = subprocess.Popen(
            [*(*COMMAND, "up", "--json", "--no-spark"),
             *("--port", "0", "--http-port", "0", "--data", str(data))],
            stdout=subprocess.PIPE, stderr=log, cwd=tmp_path,
        )  # fmt: skip
    pids: list[int] = []
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line, (tmp_path / "up.log").read_text()
        said, services = json.loads(line), wait_until_running(data)
        environment = os.environ | {
            "PATH": f"{BIN}:{os.environ['PATH']}",
            "KAFKAESQUE_BOOTSTRAP": said["bootstrap_servers"],
            "KAFKAESQUE_COORDINATION": said["zookeeper_connect"],
            "GATEWAY": services["gateway-0"]["facts"]["tcp"],
            "CONSOLE": f"http://{services['console']['facts']['http']}",
            "DATA": str(data),
            "LC_ALL": "C.UTF-8",
        }
        yield Platform(environment)
        pids = [item["pid"] for item in processes(data).values()]
    finally:
        process.send_signal(signal.SIGINT)
        try:
            process.communicate(timeout=120)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
    assert pids
    assert [pid for pid in pids if Path(f"/proc/{pid}").exists()] == []


def processes(data: Path) -> dict[str, Any]:
    done = subprocess.run(
        [*COMMAND, "status", "--json", "--data", str(data)], capture_output=True, text=True
    )
    return {item["name"]: item for item in json.loads(done.stdout)["processes"]}


def wait_until_running(data: Path) -> dict[str, Any]:
    """On a busy machine `up` may report that it is up while it starts a service for the second time."""

    def all_of_them() -> dict[str, Any]:
        found = processes(data)
        runs = all(item["state"] == "running" and item["facts"] for item in found.values())
        return found if runs else {}

    return eventually(all_of_them, "every service runs", START_SECONDS_MAX)


def type_in(step: Step, environment: dict[str, str], directory: Path) -> tuple[int, str]:
    process = subprocess.Popen(
        ["bash", "-o", "pipefail", "-c", step.command],
        env=environment, cwd=directory, text=True, start_new_session=True,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    try:
        out, err = process.communicate(timeout=COMMAND_SECONDS_MAX)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        out, err = process.communicate()
    # Notes go to standard error; a terminal shows both.
    return process.returncode, out + err


def walk(step: Step, environment: dict[str, str], directory: Path) -> str | None:
    """None, or the actual output where it differs from the tour."""
    deadline = time.monotonic() + STEP_SECONDS_MAX
    while True:
        code, output = type_in(step, environment, directory)
        if step.is_met_by(output):
            return None
        again = step.may_be_repeated or code == CANNOT_CONNECT
        if not again or time.monotonic() > deadline:
            return f"$ {step.command}\n{output}\n(exit code {code}, expected)\n{step.expected}"


def test_tour_works_as_written_and_leaves_no_process(platform: Platform, tmp_path: Path) -> None:
    environment = dict(platform.environment)
    for step in STEPS:
        if assignment := re.fullmatch(r"export (\w+)=(\S+)", step.command):
            environment[assignment[1]] = assignment[2]
            continue
        problem = walk(step, environment, tmp_path)
        assert problem is None, problem


def test_tour_has_every_stop() -> None:
    commands = "\n".join(step.command for step in STEPS)
    for stop in ("topic create", "produce", "consume", "group describe", "kill -9", "chat send",
                 "tasks timer", "coord ls", "$CONSOLE", "top --once"):  # fmt: skip
        assert stop in commands


@pytest.mark.parametrize(
    ("expected", "output", "is_met"),
    [
        ("", "", True),
        ("", "x", False),
        ("lag  2", "lag  2\n", True),
        ("lag  2", "lag  3\n", False),
        ("sent as a/...", "sent as a/77-1\n", True),
        ("All 3 brokers...", "3 of", False),
    ],
)
def test_expected_output_is_compared(expected: str, output: str, is_met: bool) -> None:
    assert Step("x", expected).is_met_by(output) is is_met
