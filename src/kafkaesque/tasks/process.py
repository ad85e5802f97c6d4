"""A service of the tasks as a process of its own, for those who kill it: fault runs and benchmarks."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

READY_SECONDS_MAX = 300.0
STOP_SECONDS_MAX = 60.0
_COMMAND = "from kafkaesque.cli.tasks import tasks; tasks(prog_name='kafkaesque tasks')"


class ServiceNotReady(Exception):
    """The process ended or said nothing in time; the text has the end of its log."""


class ServiceProcess:
    """`kafkaesque tasks ARGUMENTS`. It ends with this process, whose pipe is its standard input."""

    def __init__(self, name: str, arguments: Sequence[str], log: Path) -> None:
        self.name = name
        self._arguments = [*arguments, "--end-with-stdin"]
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None
        self.facts: dict[str, str] = {}

    @property
    def pid(self) -> int:
        return 0 if self._process is None else self._process.pid

    def launch(self) -> None:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-c", _COMMAND, *self._arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env={**os.environ, "PYTHONUNBUFFERED": "1"},
            )

    def wait_ready(self) -> None:
        process = self._process
        if process is None or process.stdout is None:
            raise ServiceNotReady(f"{self.name} was not launched")
        deadline_s = time.monotonic() + READY_SECONDS_MAX
        while time.monotonic() < deadline_s:
            if not select.select([process.stdout], [], [], 0.5)[0]:
                continue
            line = process.stdout.readline().decode()
            if line.startswith("ready "):
                self.facts = dict(word.split("=", 1) for word in line.split()[1:])
                return
            if not line:
                break
        tail = self._log.read_text(errors="replace")[-2000:]
        raise ServiceNotReady(f"{self.name} is not ready:\n{tail}")

    def start(self) -> None:
        self.launch()
        self.wait_ready()

    def kill(self) -> None:
        """kill -9."""
        self._end(signal.SIGKILL)

    def stop(self) -> int:
        """SIGTERM; its exit code."""
        return self._end(signal.SIGTERM)

    def _end(self, number: int) -> int:
        process, self._process = self._process, None
        if process is None:
            return 0
        process.send_signal(number)
        try:
            code = process.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            process.kill()
            code = process.wait()
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                stream.close()
        return code
