"""Task libraries as peers: their servers, workers and senders as processes of this machine.

Peers on Redis share one Redis server (append-only file, synced once a second); ours has a broker that
relies on the page cache (`flush=never`): the same durability. Each peer has two worker processes.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from kafkaesque.lab.bench.peers import PeerFailed
from kafkaesque.lab.bench.tasks_programs import PROGRAMS, REQUIREMENTS
from kafkaesque.testing.broker_process import BrokerProcess
from kafkaesque.testing.waiting import poll_until

READY_S = 120.0
_ROW = struct.Struct("<qq")
_CACHE = Path(os.environ.get("XDG_CACHE_HOME", "~/.cache")).expanduser() / "kafkaesque"


def peers_python() -> str:
    """The Python of an environment with the peers, created once in the cache directory, apart from ours."""
    digest = hashlib.sha256("\n".join((*REQUIREMENTS, sys.version)).encode()).hexdigest()[:12]
    place = _CACHE / f"bench-tasks-{digest}"
    python = place / "bin" / "python"
    if (place / "complete").exists():
        return str(python)
    shutil.rmtree(place, ignore_errors=True)
    try:
        subprocess.run([sys.executable, "-m", "venv", str(place)], check=True, capture_output=True)
        install = [str(python), "-m", "pip", "install", "--quiet", *REQUIREMENTS]
        subprocess.run(install, check=True, capture_output=True, text=True)
    except subprocess.CalledProcessError as error:
        raise PeerFailed(f"the peers could not be installed: {error.stderr}") from None
    (place / "complete").touch()
    return str(python)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class TaskPeer:
    """One library with its server. `rows` are all calls that have started."""

    def __init__(self, name: str, directory: Path) -> None:
        self.name = name
        self._directory = directory / name
        self._rows = self._directory / "rows"
        self._rows.mkdir(parents=True)
        (self._directory / "peer_app.py").write_text(PROGRAMS[name])
        self._python = sys.executable if name == "ours" else peers_python()
        self._processes: list[subprocess.Popen[bytes]] = []
        self._broker: BrokerProcess | None = None
        self._environment: dict[str, str] = {}

    @property
    def described(self) -> str:
        if self.name == "ours":
            return "kafkaesque tasks, 2 workers, broker with flush=never"
        kinds = {
            "celery": "prefork, 2 processes, acks_late",
            "dramatiq": "2 processes of 8 threads",
            "taskiq": "2 workers, Redis streams",
        }
        return f"{self.name} on Redis (appendonly, everysec), {kinds[self.name]}"

    def start(self) -> None:
        self._environment = {
            **os.environ,
            "BENCH_ROWS": str(self._rows),
            "PYTHONPATH": str(self._directory),
        }
        if self.name == "ours":
            settings = {"flush": "never", "group.initial.rebalance.delay.ms": 0}
            self._broker = BrokerProcess(self._directory, settings)
            self._broker.start()
            self._environment["BENCH_KAFKA"] = self._broker.bootstrap_servers
        else:
            port = free_port()
            redis = ["redis-server", "--port", str(port), "--save", "", "--appendonly", "yes",
                     "--dir", str(self._directory)]  # fmt: skip
            self._launch(redis)
            _wait_for_port(port)
            self._environment["BENCH_REDIS"] = f"redis://127.0.0.1:{port}/0"
        for command in self._worker_commands():
            self._launch(command)
        self._wait_until_running()

    def _worker_commands(self) -> list[list[str]]:
        binary = Path(self._python).parent
        if self.name == "ours":
            address = self._environment["BENCH_KAFKA"]
            command = [self._python, "-m", "kafkaesque.cli.main", "tasks", "worker", "peer_app:app",
                       "-b", address, "--data", str(self._directory / "data")]  # fmt: skip
            return [[*command, "--name", f"w{number}"] for number in range(2)]
        return {
            "celery": [[str(binary / "celery"), "-A", "peer_app", "worker", "-c", "2",
                        "--without-gossip", "--without-mingle", "-l", "ERROR"]],
            "dramatiq": [[str(binary / "dramatiq"), "peer_app", "--processes", "2",
                          "--threads", "8"]],
            "taskiq": [[str(binary / "taskiq"), "worker", "peer_app:broker", "--workers", "2",
                        "--log-level", "ERROR"]],
        }[self.name]  # fmt: skip

    def _launch(self, command: Sequence[str]) -> None:
        log = self._directory / f"{len(self._processes)}.log"
        with log.open("wb") as output:
            self._processes.append(
                subprocess.Popen(
                    command,
                    cwd=self._directory,
                    env=self._environment or None,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
            )

    def _wait_until_running(self) -> None:
        """Wait until calls are executed: no ready signal is common to all libraries."""
        self.send("noop", 1)
        poll_until(
            lambda: self.count() > 0,
            lambda: f"{self.name} runs a call\n{self._log_tails()}",
            READY_S,
            poll_s=0.05,
            error=PeerFailed,
        )

    def _log_tails(self) -> str:
        logs = sorted(self._directory.glob("*.log"))
        return "\n".join(log.read_text(errors="replace")[-1000:] for log in logs)

    def send(self, task: str, count: int, pause_s: float = 0.0) -> None:
        command = [self._python, "peer_app.py", task, str(count), str(pause_s)]
        done = subprocess.run(
            command, cwd=self._directory, env=self._environment, capture_output=True, text=True,
            check=False,
        )  # fmt: skip
        if done.returncode != 0:
            raise PeerFailed(f"{self.name} cannot send: {done.stderr[-1000:]}")

    def count(self) -> int:
        return sum(file.stat().st_size for file in self._rows.iterdir()) // _ROW.size

    def rows(self) -> list[tuple[int, int]]:
        """(time sent, time started) of all calls since `clear`, in ns."""
        data = b"".join(file.read_bytes() for file in self._rows.iterdir())
        return [(row[0], row[1]) for row in _ROW.iter_unpack(data)]

    def clear(self) -> None:
        for file in self._rows.iterdir():
            os.truncate(file, 0)

    def wait_for(self, count: int, timeout_s: float) -> None:
        poll_until(
            lambda: self.count() >= count,
            lambda: f"{self.name} runs {count} calls (it ran {self.count()})",
            timeout_s,
            poll_s=0.02,
            error=PeerFailed,
        )

    def stop(self) -> None:
        for process in reversed(self._processes):
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGTERM)
        for process in reversed(self._processes):
            try:
                process.wait(10.0)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        self._processes.clear()
        if self._broker is not None:
            self._broker.stop()


def _wait_for_port(port: int) -> None:
    def listens() -> bool:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1.0).close()
        except OSError:
            return False
        return True

    poll_until(listens, "redis-server listens", READY_S, poll_s=0.05, error=PeerFailed)
