"""Services as processes for the chat runs: gateways, back ends, the load. Started, killed, started again."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from kafkaesque.faults.runs.chat_load import LoadSettings
from kafkaesque.faults.target import TargetUnwell

READY_S: Final = 90.0
STOP_S: Final = 60.0
_CLI: Final = (sys.executable, "-m", "kafkaesque.cli.main")


class ServiceProcess:
    """One command that says `ready NAME=VALUE ...`. Ends with this process: its input is our pipe."""

    def __init__(self, name: str, command: Sequence[str], directory: Path) -> None:
        self.name = name
        self._command = [*command]
        self.log = directory / f"{name}.log"
        self._process: subprocess.Popen[bytes] | None = None
        self.facts: dict[str, str] = {}

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def launch(self, *more: str) -> None:
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [*self._command, *more],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,
            )

    def wait_ready(self) -> None:
        line = self.read_line(READY_S)
        if not line.startswith("ready "):
            raise TargetUnwell(f"{self.name} did not get ready: {self.log.read_text()[-2000:]}")
        self.facts = dict(word.split("=", 1) for word in line.split()[1:])

    def start(self) -> None:
        self.launch()
        self.wait_ready()

    def read_line(self, seconds: float) -> str:
        """What it says next on standard output; empty if nothing comes."""
        process = self._process
        if process is None or process.stdout is None:
            return ""
        deadline_s = time.monotonic() + seconds
        while (left_s := deadline_s - time.monotonic()) > 0:
            if select.select([process.stdout], [], [], left_s)[0]:
                return process.stdout.readline().decode()
        return ""

    def signal(self, number: int) -> None:
        if self._process is not None:
            os.kill(self._process.pid, number)

    def kill(self) -> None:
        self.signal(signal.SIGKILL)
        self._reap()

    def stop(self) -> int:
        """End it in order; the exit code."""
        self.signal(signal.SIGTERM)
        return self._reap()

    def end_input(self) -> None:
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()

    def _reap(self) -> int:
        process, self._process = self._process, None
        if process is None:
            return 0
        try:
            code = process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            code = process.wait()
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                stream.close()
        return code

    def close(self) -> None:
        if self._process is not None:
            self.kill()


def backend_process(
    bootstrap: str, name: str, directory: Path, *settings: str, version: str = "v1"
) -> ServiceProcess:
    command = [
        *_CLI, "chat", "backend", "-b", bootstrap, "--name", name, "--app-version", version,
        "--data", str(directory / name), "--log-level", "info", "--end-with-stdin",
    ]  # fmt: skip
    for setting in settings:
        command += ["--set", setting]
    return ServiceProcess(name, command, directory)


def gateway_process(
    bootstrap: str, name: str, directory: Path, listen: str, *settings: str
) -> ServiceProcess:
    command = [
        *_CLI, "gateway", "-b", bootstrap, "--name", name, "--listen", listen,
        "--data", str(directory / name), "--log-level", "info", "--end-with-stdin",
    ]  # fmt: skip
    for setting in settings:
        command += ["--set", setting]
    return ServiceProcess(name, command, directory)


class LoadProcess(ServiceProcess):
    """The clients."""

    def __init__(self, settings: LoadSettings, directory: Path) -> None:
        command = [sys.executable, "-m", "kafkaesque.faults.runs.chat_load"]
        super().__init__("load", [*command, json.dumps(asdict(settings))], directory)

    def finish(self, seconds: float) -> dict[str, Any]:
        """Stop talking, and wait for what is under way."""
        self.end_input()
        line = self.read_line(seconds)
        self.close()
        if not line:
            raise TargetUnwell(f"the load did not finish: {self.log.read_text()[-2000:]}")
        tally: dict[str, Any] = json.loads(line)
        return tally
