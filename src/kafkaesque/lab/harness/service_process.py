"""A service as users run it, as a child process that can be killed, started again and stopped."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Self

from kafkaesque.lab.harness.cluster import TargetFailed
from kafkaesque.service.child_process import ChildProcess, NotReady, log_tail

READY_S: Final = 300.0
STOP_S: Final = 60.0


def kafkaesque(*words: str) -> list[str]:
    """The command line of `kafkaesque WORDS`."""
    return [sys.executable, "-m", "kafkaesque.cli.main", *words]


class ServiceProcess(ChildProcess):
    """One command that prints `ready NAME=VALUE ...`, with its log in `directory`."""

    def __init__(
        self, name: str, command: Sequence[str], directory: Path, *, ready_s: float = READY_S
    ) -> None:
        log = directory / f"{name}.log"
        super().__init__(name, command, log, ready_seconds_max=ready_s, stop_seconds_max=STOP_S)

    def wait_ready(self) -> Self:
        """TargetFailed if it ends, or does not become ready in time."""
        try:
            return super().wait_ready()
        except NotReady as error:
            raise TargetFailed(str(error)) from None

    def log_tail(self) -> str:
        return log_tail(self.log)
