"""A service as users run it, as a child process that can be killed, started again and stopped."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from kafkaesque.lab.harness.cluster import TargetFailed

READY_S: Final = 300.0
STOP_S: Final = 60.0
_LAST_CHARACTERS: Final = 2000
_CHUNK_BYTES: Final = 65_536


def kafkaesque(*words: str) -> list[str]:
    """The command line of `kafkaesque WORDS`."""
    return [sys.executable, "-m", "kafkaesque.cli.main", *words]


class ServiceProcess:
    """A command that prints `ready NAME=VALUE ...` when it serves; `facts` are these values.

    Its standard input is a pipe of ours, so that it can end with this process.
    """

    def __init__(
        self, name: str, command: Sequence[str], directory: Path, *, ready_s: float = READY_S
    ) -> None:
        self.name = name
        self.log = directory / f"{name}.log"
        self.facts: dict[str, str] = {}
        self._command = [*command]
        self._ready_s = ready_s
        self._process: subprocess.Popen[bytes] | None = None
        self._unread = b""

    @property
    def pid(self) -> int:
        return 0 if self._process is None else self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def launch(self, *more: str) -> None:
        self._unread = b""
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [*self._command, *more],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,
            )

    def wait_ready(self) -> None:
        """Wait for the ready line. TargetFailed if the process ends or the time is over."""
        deadline_s = time.monotonic() + self._ready_s
        while line := self.read_line(deadline_s - time.monotonic()):
            if line.startswith("ready "):
                words = line.split()[1:]
                self.facts = dict(word.split("=", 1) for word in words if "=" in word)
                return
        raise TargetFailed(f"{self.name} did not become ready: {self.log_tail()}")

    def start(self) -> None:
        self.launch()
        self.wait_ready()

    def read_line(self, seconds: float) -> str:
        """The next line of standard output; empty at its end or after `seconds`."""
        process = self._process
        if process is None or process.stdout is None:
            return ""
        deadline_s = time.monotonic() + seconds
        while b"\n" not in self._unread:
            left_s = max(0.0, deadline_s - time.monotonic())
            if not select.select([process.stdout], [], [], left_s)[0]:
                return ""
            # Not readline: select does not see lines that are already in its buffer.
            piece = os.read(process.stdout.fileno(), _CHUNK_BYTES)
            if not piece:
                break
            self._unread += piece
        line, end, self._unread = self._unread.partition(b"\n")
        return (line + end).decode(errors="replace")

    def log_tail(self) -> str:
        return self.log.read_text(errors="replace")[-_LAST_CHARACTERS:]

    def kill(self) -> None:
        """kill -9, including the processes it has started."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
        self._reap()

    def stop(self) -> int:
        """SIGTERM; waits for the end and returns the exit code."""
        if self._process is not None:
            self._process.send_signal(signal.SIGTERM)
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
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            code = process.wait()
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                stream.close()
        return code
