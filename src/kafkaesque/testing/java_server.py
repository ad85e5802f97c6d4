"""Starts and stops third-party servers that run on the JVM, in a temporary directory.

What Apache Kafka and Apache ZooKeeper have in common; their own modules have the rest.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import ClassVar, Self

import click

from kafkaesque.service.child_process import print_ready
from kafkaesque.testing.maven import JavaUnavailable, require_tool
from kafkaesque.testing.waiting import poll_until

HOST = "127.0.0.1"
_POLL_S = 0.1

# The guard outlives a parent that was killed: its standard input is a pipe from us, so `read`
# succeeds when we write `done` and fails when we have died.
_GUARD = 'read -r word || { kill -9 "$@" 2>/dev/null; rm -rf "$GUARDED_DIRECTORY"; }'


class JavaServerFailed(Exception):
    """The JVM ended or did not serve in time; the message has the end of its log."""


class JavaServer(ABC):
    """One JVM or several, alive between `start` and `stop`."""

    kind: ClassVar[str]
    """Prefix of the name of the temporary directory."""
    stop_timeout_s: ClassVar[float]

    def __init__(self) -> None:
        self._processes: list[subprocess.Popen[bytes]] = []
        self._directory: Path | None = None
        self._guard: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    @property
    def pids(self) -> list[int]:
        return [process.pid for process in self._processes]

    @property
    def directory(self) -> Path:
        """The temporary directory of this run; `stop` removes it."""
        if self._directory is None:
            raise JavaServerFailed(f"{self.kind} is not started")
        return self._directory

    def start(self) -> None:
        """Fetch the jars if needed, start the JVMs, and return once they serve."""
        java, jars = require_tool("java"), self._resolve()
        self._directory = Path(tempfile.mkdtemp(prefix=f"{self.kind}-"))
        try:
            self._launch_all(java, jars, self._directory)
            self._guard = start_guard(self._directory, self.pids)
            self._wait_until_ready()
        except BaseException:
            # Ctrl-C too: no JVM outlives the error.
            self.stop()
            raise

    @abstractmethod
    def _resolve(self) -> str:
        """The classpath; jars are fetched if they are not in the local repository."""

    @abstractmethod
    def _launch_all(self, java: str, jars: str, directory: Path) -> None:
        """Write the configuration files, and `_launch` each JVM."""

    @abstractmethod
    def _wait_until_ready(self) -> None:
        """Return when clients can connect; JavaServerFailed says why they cannot."""

    def _launch(
        self, java: str, jars: str, directory: Path, options: Sequence[str], main: Sequence[str]
    ) -> None:
        """Start a JVM with `options` that runs the class and arguments of `main`."""
        with console_log(directory).open("ab") as console:
            process = subprocess.Popen(
                [java, *options, "-cp", jars, *main],
                cwd=directory,
                stdin=subprocess.DEVNULL,
                stdout=console,
                stderr=subprocess.STDOUT,
                # A session of its own: Ctrl-C reaches only us, and we stop the JVM cleanly.
                start_new_session=True,
            )
        self._processes.append(process)

    def stop(self) -> None:
        """Stop the JVMs (SIGTERM, after a timeout SIGKILL) and remove the directory."""
        for process in self._processes:
            process.terminate()
        deadline = time.monotonic() + self.stop_timeout_s
        for process in self._processes:
            try:
                process.wait(max(0.1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        if self._directory is not None:
            shutil.rmtree(self._directory, ignore_errors=True)
        if self._guard is not None:
            self._guard.communicate(b"done\n")
        self._processes, self._directory, self._guard = [], None, None


def console_log(directory: Path) -> Path:
    return directory / "console.log"


def wait_until_serving(
    is_serving: Callable[[], bool],
    process: subprocess.Popen[bytes],
    deadline_s: float,
    log: Callable[[], str],
) -> None:
    """Poll until `is_serving`. JavaServerFailed with the `log` if the JVM ends or time is up."""

    def look() -> bool:
        if is_serving():
            return True
        if process.poll() is not None:
            raise JavaServerFailed(f"the JVM ended:\n{log()}")
        return False

    poll_until(
        look,
        lambda: f"the JVM serves\n{log()}",
        deadline_s - time.monotonic(),
        poll_s=_POLL_S,
        error=JavaServerFailed,
    )


def start_guard(directory: Path, pids: Sequence[int]) -> subprocess.Popen[bytes]:
    """A shell that kills `pids` and removes `directory` if we die; writing `b"done\\n"` ends it."""
    return subprocess.Popen(
        ["/bin/sh", "-c", _GUARD, "java-server-guard", *map(str, pids)],
        env={"PATH": os.environ.get("PATH", "/usr/bin:/bin"), "GUARDED_DIRECTORY": str(directory)},
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def take_port(port: int) -> int:
    """Check that `port` is free and return it, or a free port for 0.

    Another process on the port would answer in place of the server.
    """
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError as error:
            raise JavaServerFailed(
                f"port {port} is in use: choose another, or 0 for a free one"
            ) from error
        return int(probe.getsockname()[1])


def write_properties(file: Path, values: Mapping[str, str]) -> None:
    file.write_text("".join(f"{name}={value}\n" for name, value in values.items()))


def read_properties(assignments: Sequence[str]) -> dict[str, str]:
    """Parses the NAME=VALUE arguments of --set."""
    pairs = dict(text.split("=", 1) for text in assignments if "=" in text)
    if len(pairs) < len(assignments):
        raise click.UsageError("--set takes NAME=VALUE")
    return pairs


def run_in_foreground(server: JavaServer, facts: Callable[[], Mapping[str, str]]) -> None:
    """Run until Ctrl-C or SIGTERM. `facts` of the running server go into the ready line."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with server:
            print_ready({**facts(), "pid": ",".join(map(str, server.pids))})
            signal.pause()
    except KeyboardInterrupt:
        click.echo("stopped", err=True)
    except (JavaServerFailed, JavaUnavailable) as error:
        raise click.ClickException(str(error)) from error
