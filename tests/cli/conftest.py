"""A Kafka for the end-to-end tests of the command line, and the command itself as a process.

`KAFKA=host:port` names one (an Apache Kafka); otherwise a broker of ours is started.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from typing import Any

import pytest
from click.testing import CliRunner

from kafkaesque.cli import main
from kafkaesque.cli.failures import ExitCode
from kafkaesque.testing.broker_process import BrokerProcess

COMMAND = [sys.executable, "-m", "kafkaesque.cli.main"]
START_TIMEOUT_S = 30
COMMAND_TIMEOUT_S = 60


@dataclass(frozen=True)
class Outcome:
    """The result of a command."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def json_lines(self) -> list[Any]:
        return [json.loads(line) for line in self.out.splitlines()]


Run = Callable[..., Outcome]


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Address of the Kafka under test."""
    given = os.environ.get("KAFKA")
    if given:
        yield given
        return
    settings = {"group.initial.rebalance.delay.ms": 0}
    with BrokerProcess(tmp_path_factory.mktemp("broker"), settings) as broker:
        yield broker.bootstrap_servers


@pytest.fixture
def run(kafka: str) -> Run:
    """Run `kafkaesque ARGS` in this process, with `stdin` as its input: for most tests, for speed."""

    def invoke(*args: str, stdin: str | bytes = b"") -> Outcome:
        runner = CliRunner(env={"KAFKAESQUE_BOOTSTRAP": kafka})
        with runner.isolation(input=stdin) as (out, err, _):
            code = main.run(args)
            sys.stdout.flush()
            return Outcome(code, out.getvalue().decode(), err.getvalue().decode())

    return invoke


@pytest.fixture
def command(kafka: str) -> Run:
    """Run `kafkaesque ARGS` as a user does, as a process of its own."""
    environment = {**os.environ, "KAFKAESQUE_BOOTSTRAP": kafka}

    def invoke(*args: str, stdin: str | bytes = b"") -> Outcome:
        data = stdin.encode() if isinstance(stdin, str) else stdin
        done = subprocess.run(
            [*COMMAND, *args],
            input=data,
            capture_output=True,
            env=environment,
            timeout=COMMAND_TIMEOUT_S,
        )
        return Outcome(done.returncode, done.stdout.decode(), done.stderr.decode())

    return invoke


@contextmanager
def background(kafka: str, *args: str) -> Iterator[subprocess.Popen[bytes]]:
    """`kafkaesque ARGS` running during the test, with pipes; it never outlives the test."""
    with subprocess.Popen(
        [*COMMAND, *args],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "KAFKAESQUE_BOOTSTRAP": kafka},
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def read_line(process: subprocess.Popen[bytes]) -> bytes:
    assert process.stdout is not None
    return process.stdout.readline()


_NUMBERS = count()


@pytest.fixture
def name() -> str:
    """A unique name for a topic or a group; a given Kafka may have those of earlier runs."""
    return f"cli-{os.urandom(4).hex()}-{next(_NUMBERS)}"


@pytest.fixture
def topic(run: Run, name: str) -> str:
    """A topic of two partitions."""
    outcome = run("topic", "create", name, "--partitions", "2")
    assert outcome.code == ExitCode.OK, outcome.err
    return name
