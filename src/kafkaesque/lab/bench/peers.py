"""The servers under test, with one interface: ours, the floor, Apache Kafka.

All peers are started with the same durability. A benchmark uses only a peer's socket and process ids.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path

from kafkaesque.lab.harness import proc
from kafkaesque.model.address import parse_address
from kafkaesque.service.child_process import ChildProcess, NotReady

READY_TIMEOUT_S = 120.0
STOP_TIMEOUT_S = 180.0
"""A clean stop syncs every log with unsynced data, which takes a while with 5,000 logs."""
FLOOR_SCRIPT = Path(__file__).resolve().parents[4] / "benchmarks" / "floor.py"
KAFKA_VERSION_DEFAULT = "4.3.1"


class PeerFailed(Exception):
    """A server did not start or is not available; the message has the end of its output."""


@dataclass(frozen=True, slots=True)
class PeerOptions:
    """Options shared by the peers of one run. `durable`: records are synced before they are acknowledged."""

    directory: Path
    durable: bool = False
    loop: str = "uvloop"
    settings: Mapping[str, str] = field(default_factory=dict)
    floor_arguments: Sequence[str] = ()
    port: int = 0


class Peer(ABC):
    """One server, alive between `start` and `stop`."""

    name: str
    has_topics = True

    def __init__(self, options: PeerOptions) -> None:
        self.options = options
        self.host = "127.0.0.1"
        self.port = options.port

    @abstractmethod
    def start(self) -> None:
        """Return when the server reports that it is ready."""

    @abstractmethod
    def stop(self) -> None: ...

    @property
    @abstractmethod
    def pids(self) -> Sequence[int]: ...

    @property
    @abstractmethod
    def described(self) -> str:
        """Version and relevant settings, for the report."""

    @property
    def bootstrap(self) -> str:
        return f"{self.host}:{self.port}"

    def cpu_seconds(self) -> float:
        return proc.cpu_seconds(self.pids)

    def rss_bytes(self) -> int:
        return proc.rss_bytes(self.pids)

    def open_files(self) -> int:
        return proc.open_files(self.pids)

    def forget_data(self) -> None:  # noqa: B027 - most peers delete topics instead
        """Drop the data of one turn, for servers that cannot delete topics."""


class ScriptPeer(Peer):
    """A Python server that prints `ready kafka=HOST:PORT ...` on its standard output."""

    def __init__(self, options: PeerOptions) -> None:
        super().__init__(options)
        self.data = options.directory / self.name
        self._child: ChildProcess | None = None
        self.facts: dict[str, str] = {}
        """The values of the `ready` line."""

    @abstractmethod
    def command(self) -> list[str]: ...

    def environment(self) -> dict[str, str]:
        """This process's variables, but Python may cache bytecode, as in an installed package."""
        return {name: v for name, v in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}

    def launch(self) -> None:
        """Start the process and return at once."""
        self.data.mkdir(parents=True, exist_ok=True)
        self._child = ChildProcess(
            self.name,
            self.command(),
            self.options.directory / f"{self.name}.log",
            environment=self.environment(),
            holds_stdin=False,
            ready_seconds_max=READY_TIMEOUT_S,
            stop_seconds_max=STOP_TIMEOUT_S,
        )
        self._child.launch()

    def wait_ready(self) -> None:
        if self._child is None:
            raise PeerFailed(f"{self.name} was not launched")
        try:
            self._child.wait_ready()
        except NotReady as error:
            raise PeerFailed(str(error)) from None
        self.facts = self._child.facts
        self.host, self.port = parse_address(self.facts["kafka"])

    def start(self) -> None:
        self.launch()
        self.wait_ready()

    def stop(self) -> None:
        child, self._child = self._child, None
        if child is not None:
            child.stop()

    def kill(self) -> None:
        child, self._child = self._child, None
        if child is not None:
            child.kill()

    @property
    def pids(self) -> Sequence[int]:
        return () if self._child is None else proc.descendants(self._child.pid)


class Ours(ScriptPeer):
    """`kafkaesque broker` as a user starts it."""

    name = "ours"

    def command(self) -> list[str]:
        settings = dict(self.options.settings)
        if not self.options.durable:
            settings["flush"] = "never"
        flags = [part for item in settings.items() for part in ("--set", "=".join(item))]
        listen = f"127.0.0.1:{self.options.port}"
        broker = ["broker", "--node-id", "0", "--data", str(self.data), "--listen", listen]
        return [sys.executable, "-m", "kafkaesque.cli.main", *broker, *flags]

    @property
    def described(self) -> str:
        flush = "default (synced before acknowledged)" if self.options.durable else "never"
        return f"kafkaesque {version('kafkaesque-platform')}, flush={flush}"


class Checkout(Ours):
    """The broker of another version: a source checkout, compiled, run by this Python."""

    def __init__(self, options: PeerOptions, checkout: Path) -> None:
        self.name = peer_label(str(checkout))
        self._checkout = checkout
        super().__init__(options)

    def environment(self) -> dict[str, str]:
        return super().environment() | checkout_environment(self._checkout)

    @property
    def described(self) -> str:
        flush = "default (synced before acknowledged)" if self.options.durable else "never"
        return f"kafkaesque of {describe_checkout(self._checkout)}, flush={flush}"


def is_checkout(name: str) -> bool:
    """Whether a peer is not a name but the directory of a source checkout."""
    return os.sep in name


def peer_label(name: str) -> str:
    """The name of a peer in reports and for its files: of a checkout, its directory's."""
    return Path(name).resolve().name if is_checkout(name) else name


def describe_checkout(checkout: Path) -> str:
    """The path, and whether its broker runs compiled: otherwise the comparison means little."""
    show = "import kafkaesque; print(getattr(kafkaesque, 'BUILD').text)"
    run = subprocess.run(
        [sys.executable, "-c", show],
        env=os.environ | checkout_environment(checkout),
        capture_output=True,
        text=True,
        check=False,
    )
    return f"{checkout} ({run.stdout.strip() or 'an old version: compiled or not is unknown'})"


def checkout_environment(checkout: Path) -> dict[str, str]:
    """The variables with which Python runs the checkout instead of what is installed."""
    if not (checkout / "src" / "kafkaesque").is_dir():
        raise PeerFailed(f"{checkout} is not a checkout of kafkaesque: it has no src/kafkaesque")
    return {"PYTHONPATH": str(checkout.resolve() / "src")}


class Floor(ScriptPeer):
    """The bare asyncio server of benchmarks/floor.py."""

    name = "floor"
    has_topics = False

    def command(self) -> list[str]:
        if not FLOOR_SCRIPT.exists():
            raise PeerFailed(f"the floor needs a source checkout: {FLOOR_SCRIPT} is missing")
        command = [sys.executable, str(FLOOR_SCRIPT), "--data", str(self.data)]
        command += ["--loop", self.options.loop, "--port", str(self.options.port)]
        command += ["--sync"] if self.options.durable else []
        return [*command, *self.options.floor_arguments]

    @property
    def described(self) -> str:
        sync = "fdatasync in rounds" if self.options.durable else "no sync"
        return f"benchmarks/floor.py, {self.options.loop}, {sync}"

    def forget_data(self) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.truncate(self.data / "frames", 0)


class Kafka(Peer):
    """Apache Kafka from Maven artifacts: one KRaft node with its own defaults."""

    name = "kafka"

    def __init__(self, options: PeerOptions, kafka_version: str = KAFKA_VERSION_DEFAULT) -> None:
        super().__init__(options)
        # Imported late: a run without Kafka must not require Java.
        from kafkaesque.testing.apache_kafka import ApacheKafka

        settings = {"auto.create.topics.enable": "true", **options.settings}
        if options.durable:
            settings["log.flush.interval.messages"] = "1"
        self._kafka = ApacheKafka(kafka_version, settings, port=options.port)

    def start(self) -> None:
        from kafkaesque.testing.java_server import JavaServerFailed
        from kafkaesque.testing.maven import JavaUnavailable

        try:
            self._kafka.start()
        except (JavaServerFailed, JavaUnavailable) as error:
            raise PeerFailed(str(error)) from error
        self.host, self.port = parse_address(self._kafka.bootstrap_servers)

    def stop(self) -> None:
        self._kafka.stop()

    @property
    def pids(self) -> Sequence[int]:
        return self._kafka.pids

    @property
    def described(self) -> str:
        sync = "flush.messages=1" if self.options.durable else "its default flush"
        return f"Apache Kafka {self._kafka.version}, KRaft, {sync}"


def make_peer(name: str, options: PeerOptions) -> Peer:
    if is_checkout(name):
        return Checkout(options, Path(name))
    kinds: dict[str, type[Peer]] = {"ours": Ours, "floor": Floor, "kafka": Kafka}
    return kinds[name](options)


@contextlib.contextmanager
def running(names: Sequence[str], options: PeerOptions) -> Iterator[list[Peer]]:
    """Runs all peers at once (an idle one costs the others nothing) until the end of the `with`."""
    peers: list[Peer] = []
    try:
        for name in names:
            peer = make_peer(name, options)
            peers.append(peer)
            peer.start()
        yield peers
    finally:
        for peer in peers:
            peer.stop()
        shutil.rmtree(options.directory, ignore_errors=True)
