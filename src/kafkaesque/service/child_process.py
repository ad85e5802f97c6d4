"""The `ready` line between a server process and its parent, and child processes that print it.

A server prints `ready NAME=VALUE ...` on standard output once it serves; the values are its actual
addresses, its pid and the like. Parents (`kafkaesque up`, tests, benchmarks, fault runs) wait for
the line and read the addresses from it.

A child's standard input is a pipe that its parent holds. It ends when the parent ends, however that
happens, so a child started with `--end-with-stdin` does not outlive its parent.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

READY_SECONDS_MAX = 30.0
STOP_SECONDS_MAX = 15.0
_WORD = "ready"
_CHUNK_BYTES = 65_536
_LOG_LINES_SHOWN = 20


class NotReady(Exception):
    """A child ended, or did not print `ready` in time. The text has the end of its log."""


# -- the child's side ------------------------------------------------------------------------------


def ready_line(facts: Mapping[str, object]) -> str:
    return " ".join((_WORD, *(f"{name}={value}" for name, value in facts.items())))


def print_ready(facts: Mapping[str, object]) -> None:
    """Print the line that supervisors and scripts wait for."""
    sys.stdout.write(f"{ready_line(facts)}\n")
    sys.stdout.flush()


# -- the parent's side -----------------------------------------------------------------------------


def parse_ready(line: str) -> dict[str, str] | None:
    """The facts of a `ready` line; None for any other line."""
    first, *words = line.split() or [""]
    if first != _WORD:
        return None
    return dict(word.split("=", 1) for word in words if "=" in word)


async def read_ready(output: asyncio.StreamReader) -> dict[str, str]:
    """Skip lines up to the `ready` line and return its facts. EOFError if the output ends first."""
    while line := await output.readline():
        facts = parse_ready(line.decode(errors="replace"))
        if facts is not None:
            return facts
    raise EOFError


def log_tail(*logs: Path, lines: int = _LOG_LINES_SHOWN) -> str:
    """The last lines of each of those files that exists."""
    tails = [log.read_text(errors="replace").splitlines()[-lines:] for log in logs if log.exists()]
    return "\n".join(line for tail in tails for line in tail)


class ChildProcess:
    """A server process for callers that block: started, killed, started again, stopped.

    `log` receives standard error. `environment` None inherits ours. Without `holds_stdin` the child
    gets no standard input.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        log: Path,
        *,
        environment: Mapping[str, str] | None = None,
        holds_stdin: bool = True,
        ready_seconds_max: float = READY_SECONDS_MAX,
        stop_seconds_max: float = STOP_SECONDS_MAX,
    ) -> None:
        self.name = name
        self.command = [*command]
        self.log = log
        self.facts: dict[str, str] = {}
        """From the last `ready` line."""
        self._ready_seconds_max = ready_seconds_max
        self._stop_seconds_max = stop_seconds_max
        self._environment = environment
        self._stdin = subprocess.PIPE if holds_stdin else subprocess.DEVNULL
        self._process: subprocess.Popen[bytes] | None = None
        self._unread = b""

    @property
    def pid(self) -> int:
        """0 while there is no process."""
        return 0 if self._process is None else self._process.pid

    @property
    def was_launched(self) -> bool:
        """Whether there is a process to wait for, running or ended."""
        return self._process is not None

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def launch(self, *more: str) -> None:
        """Start without waiting. `more` arguments are for this start only."""
        self._unread = b""
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [*self.command, *more],
                stdin=self._stdin,
                stdout=subprocess.PIPE,
                stderr=log,
                env=self._environment,
                start_new_session=True,
            )

    def start(self) -> Self:
        """Start and wait until it serves. Raises NotReady."""
        self.launch()
        return self.wait_ready()

    def wait_ready(self) -> Self:
        """Wait for the `ready` line and keep its facts. Raises NotReady."""
        deadline = time.monotonic() + self._ready_seconds_max
        while line := self.read_line(deadline - time.monotonic()):
            facts = parse_ready(line)
            if facts is not None:
                self.facts = facts
                return self
        raise NotReady(
            f"{self.name} did not become ready; its log {self.log} ends with:\n{log_tail(self.log)}"
        )

    def read_line(self, seconds_max: float) -> str:
        """The next line of standard output; empty if none comes in time or the output has ended."""
        process = self._process
        if process is None or process.stdout is None:
            return ""
        deadline = time.monotonic() + seconds_max
        poller = select.poll()  # takes any descriptor; select() only the first 1,024
        poller.register(process.stdout, select.POLLIN)
        while b"\n" not in self._unread:
            if not poller.poll(max(0.0, deadline - time.monotonic()) * 1000):
                return ""
            # Not readline(): poll does not see lines that are already in its buffer.
            chunk = os.read(process.stdout.fileno(), _CHUNK_BYTES)
            if not chunk:
                break
            self._unread += chunk
        line, end, self._unread = self._unread.partition(b"\n")
        return (line + end).decode(errors="replace")

    def signal(self, number: int) -> None:
        if self._process is not None:
            self._process.send_signal(number)

    def end_input(self) -> None:
        """Close the child's standard input, as the death of its parent would."""
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()

    def kill(self) -> None:
        """kill -9 the child with everything it started, and wait until it is gone."""
        if self._process is not None:
            _kill_group(self._process)
        self._reap()

    def stop(self) -> int:
        """SIGTERM, and kill -9 if that takes too long. Returns the exit code."""
        process = self._process
        if process is None:
            return 0
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(self._stop_seconds_max)
        except subprocess.TimeoutExpired:
            _kill_group(process)
        return self._reap()

    def wait(self, timeout_seconds: float = STOP_SECONDS_MAX) -> int:
        """Wait until the child ends by itself and return its exit code.

        Raises subprocess.TimeoutExpired.
        """
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


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    """The child leads a session of its own, so its process group is what it started."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
