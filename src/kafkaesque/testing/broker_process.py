"""A broker as a child process, for tests that kill, pause and restart it.

with BrokerProcess(tmp_path) as broker:
    ... broker.bootstrap_servers ...
    broker.kill()          # kill -9
    broker.start()         # the same data, the same port
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

READY_SECONDS_MAX = 30.0
STOP_SECONDS_MAX = 15.0


class BrokerNotReady(Exception):
    """The process ended or did not become ready in time; the message has the end of its log."""


class BrokerProcess:
    """`kafkaesque broker` with its data in `directory`; `settings` by Kafka's names.

    The process ends with this one, however this one ends: its standard input is a pipe of ours.
    """

    def __init__(
        self,
        directory: Path,
        settings: Mapping[str, object] | None = None,
        *,
        listen: str = "127.0.0.1:0",
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.data = directory / "data"
        self.log = directory / "broker.log"
        self.settings = dict(settings or {})
        self._listen = listen
        self._environment = {**os.environ, **(environment or {})}
        self._process: subprocess.Popen[bytes] | None = None
        self.facts: dict[str, str] = {}
        """The values of the line `ready NAME=VALUE ...`."""

    def start(self) -> Self:
        """Start, or start again on the same port, and wait until the broker serves."""
        self.launch()
        return self.wait_ready()

    def launch(self) -> None:
        """Start without waiting: a broker may need others to run first."""
        directory = self.data.parent
        directory.mkdir(parents=True, exist_ok=True)
        address = self.facts.get("kafka", self._listen)
        command = [
            *(sys.executable, "-m", "kafkaesque.cli.main", "broker"),
            *("--data", str(self.data), "--listen", address, "--end-with-stdin"),
        ]
        for name, value in self.settings.items():
            command += [
                "--set",
                f"{name}={str(value).lower() if value in (True, False) else value}",
            ]
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env=self._environment,
                start_new_session=True,
            )

    def wait_ready(self) -> Self:
        if self._process is not None:
            self.facts = self._read_ready(self._process)
        return self

    def _read_ready(self, process: subprocess.Popen[bytes]) -> dict[str, str]:
        deadline = time.monotonic() + READY_SECONDS_MAX
        output = process.stdout
        poller = select.poll()  # takes any descriptor; select() only the first 1,024
        if output is not None:
            poller.register(output, select.POLLIN)
        while output is not None and (left := deadline - time.monotonic()) > 0:
            if not poller.poll(left * 1000):
                break
            line = output.readline().decode()
            if line.startswith("ready "):
                return dict(word.split("=", 1) for word in line.split()[1:])
            if not line:
                break
        self.stop()
        raise BrokerNotReady(f"the broker did not become ready:\n{self.log.read_text()[-4000:]}")

    @property
    def bootstrap_servers(self) -> str:
        return self.facts["kafka"]

    @property
    def http_address(self) -> str:
        return self.facts["http"]

    @property
    def pid(self) -> int:
        return int(self.facts["pid"])

    def signal(self, number: int) -> None:
        """Send a signal, for example SIGSTOP and SIGCONT to pause and resume."""
        if self._process is not None:
            self._process.send_signal(number)

    def kill(self) -> None:
        """kill -9, and wait until the process has ended."""
        if self._process is not None:
            self._process.kill()
            self._reap()

    def stop(self) -> int:
        """Stop with SIGTERM; returns the exit code."""
        process = self._process
        if process is None:
            return 0
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(STOP_SECONDS_MAX)
            except subprocess.TimeoutExpired:
                process.kill()
        return self._reap()

    def wait(self, timeout_seconds: float = STOP_SECONDS_MAX) -> int:
        """Wait until the process ends by itself; returns the exit code."""
        if self._process is not None:
            self._process.wait(timeout_seconds)
        return self._reap()

    def _reap(self) -> int:
        process, self._process = self._process, None
        if process is None:
            return 0
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()
        return process.wait()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()
