"""Services as processes for the chat runs: gateways, back ends, the load. Started, killed, started again."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from kafkaesque.lab.faults.runs.chat_load import LoadSettings
from kafkaesque.lab.faults.runs.service_process import ServiceProcess, kafkaesque
from kafkaesque.lab.faults.target import TargetUnwell

READY_S: Final = 90.0


def backend_process(
    bootstrap: str, name: str, directory: Path, *settings: str, version: str = "v1"
) -> ServiceProcess:
    words = ("chat", "backend", "--app-version", version)
    return _service(bootstrap, name, directory, words, settings)


def gateway_process(
    bootstrap: str, name: str, directory: Path, listen: str, *settings: str
) -> ServiceProcess:
    return _service(bootstrap, name, directory, ("gateway", "--listen", listen), settings)


def _service(
    bootstrap: str, name: str, directory: Path, words: Sequence[str], settings: Sequence[str]
) -> ServiceProcess:
    command = kafkaesque(
        *words, "-b", bootstrap, "--name", name, "--data", str(directory / name),
        "--log-level", "info", "--end-with-stdin",
    )  # fmt: skip
    for setting in settings:
        command += ["--set", setting]
    return ServiceProcess(name, command, directory, ready_s=READY_S)


class LoadProcess(ServiceProcess):
    """The clients."""

    def __init__(self, settings: LoadSettings, directory: Path) -> None:
        command = [sys.executable, "-m", "kafkaesque.lab.faults.runs.chat_load"]
        super().__init__(
            f"load-{settings.prefix}", [*command, json.dumps(asdict(settings))], directory,
            ready_s=READY_S,
        )  # fmt: skip

    def finish(self, seconds: float) -> dict[str, Any]:
        """Stop talking, and wait for what is under way."""
        self.end_input()
        line = self.read_line(seconds)
        self.kill()
        if not line:
            raise TargetUnwell(f"the load did not finish: {self.last_words()}")
        tally: dict[str, Any] = json.loads(line)
        return tally
