"""A real Apache ZooKeeper on this machine, from Maven artefacts: the oracle of our coordination.

Lives here: starting, watching and stopping one standalone server as a child process in a temporary
directory. No expectation about its behaviour lives here (tests/conformance_zookeeper does that).

    with ZooKeeper() as zookeeper:
        KazooClient(hosts=zookeeper.connect_string)

    python -m kafkaesque.testing.zookeeper --port 21810
"""

from __future__ import annotations

import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

import click

from kafkaesque.testing.apache_kafka import start_guard
from kafkaesque.testing.maven import JavaUnavailable, classpath, require_tool

DEFAULT_VERSION = "3.9.3"
HOST = "127.0.0.1"
READY_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 10.0

DEFAULT_SETTINGS: Mapping[str, str] = {
    # Short sessions, so that a test of their end is short too.
    "tickTime": "200",
    "minSessionTimeout": "400",
    "maxSessionTimeout": "40000",
    "4lw.commands.whitelist": "ruok,srvr,mntr",
    "admin.enableServer": "false",
}
DEFAULT_PROPERTIES: Mapping[str, str] = {
    "zookeeper.extendedTypesEnabled": "true",  # nodes with a TTL
    "znode.container.checkIntervalMs": "500",
}


class ZooKeeperFailed(Exception):
    """The JVM ended or did not serve in time; the text has the end of its output."""


class ZooKeeper:
    """One standalone server, alive between `start` and `stop`.

    `settings` are those of zoo.cfg and win over `DEFAULT_SETTINGS`; port 0 takes a free one.
    """

    def __init__(
        self,
        version: str = DEFAULT_VERSION,
        settings: Mapping[str, str] | None = None,
        *,
        port: int = 0,
        heap: str = "256m",
    ) -> None:
        self.version = version
        self.port = port
        self._settings = {**DEFAULT_SETTINGS, **(settings or {})}
        self._heap = heap
        self._directory: Path | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._guard: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> ZooKeeper:
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
    def connect_string(self) -> str:
        return f"{HOST}:{self.port}"

    @property
    def pid(self) -> int:
        if self._process is None:
            raise ZooKeeperFailed("ZooKeeper is not started")
        return self._process.pid

    def start(self) -> None:
        """Resolve, start, and return once the server says that it is well."""
        java, jars = require_tool("java"), resolve(self.version)
        self.port = _take_port(self.port)
        self._directory = Path(tempfile.mkdtemp(prefix="zookeeper-"))
        try:
            self._process = self._launch(java, jars, self._directory)
            self._guard = start_guard(self._directory, [self._process.pid])
            self._wait_until_ready(self._process, self._directory / "console.log")
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Stop the server and remove its directory."""
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            self._process = None
        if self._guard is not None:
            self._guard.communicate(b"done\n")
            self._guard = None
        if self._directory is not None:
            shutil.rmtree(self._directory, ignore_errors=True)
            self._directory = None

    def _launch(self, java: str, jars: str, directory: Path) -> subprocess.Popen[bytes]:
        settings = {
            "dataDir": str(directory / "data"),
            "clientPort": str(self.port),
            "clientPortAddress": HOST,
            **self._settings,
        }
        config = directory / "zoo.cfg"
        config.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        properties = [f"-D{name}={value}" for name, value in DEFAULT_PROPERTIES.items()]
        with (directory / "console.log").open("wb") as console:
            return subprocess.Popen(
                [
                    java,
                    f"-Xmx{self._heap}",
                    "-XX:TieredStopAtLevel=1",
                    *properties,
                    "-cp",
                    jars,
                    "org.apache.zookeeper.server.ZooKeeperServerMain",
                    str(config),
                ],
                cwd=directory,
                stdin=subprocess.DEVNULL,
                stdout=console,
                stderr=subprocess.STDOUT,
                # A session of its own: Ctrl-C reaches us, and we stop it in order.
                start_new_session=True,
            )

    def _wait_until_ready(self, process: subprocess.Popen[bytes], console: Path) -> None:
        deadline = time.monotonic() + READY_TIMEOUT_S
        while not self._is_well():
            if process.poll() is not None or time.monotonic() > deadline:
                words = "\n".join(console.read_text(errors="replace").splitlines()[-15:])
                raise ZooKeeperFailed(f"ZooKeeper does not serve:\n{words}")
            time.sleep(0.05)

    def _is_well(self) -> bool:
        try:
            with socket.create_connection((HOST, self.port), timeout=5) as link:
                link.sendall(b"srvr")
                answer = b""
                while chunk := link.recv(4096):
                    answer += chunk
        except OSError:
            return False
        # "This ZooKeeper instance is not currently serving requests" comes before it is ready.
        return b"Mode:" in answer


def resolve(version: str) -> str:
    """The classpath of that ZooKeeper, fetched if it is not here yet."""
    return classpath(
        (
            f"org.apache.zookeeper:zookeeper:{version}",
            # Optional in its own list, and needed by the server all the same.
            "io.dropwizard.metrics:metrics-core:4.1.12.1",
            "org.xerial.snappy:snappy-java:1.1.10.5",
        )
    )


def _take_port(port: int) -> int:
    """A port that nobody has; somebody else on it would answer in ZooKeeper's place."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError as error:
            raise ZooKeeperFailed(f"port {port} is in use: choose another, or 0") from error
        return int(probe.getsockname()[1])


@click.command(help="Run an Apache ZooKeeper in the foreground until Ctrl-C.")
@click.option("--version", default=DEFAULT_VERSION, show_default=True)
@click.option("--port", default=0, help="Client port; 0 takes a free one.")
@click.option("--heap", default="256m", show_default=True, help="Heap of the JVM.")
@click.option("--set", "settings", multiple=True, metavar="NAME=VALUE", help="A line of zoo.cfg.")
def main(version: str, port: int, heap: str, settings: tuple[str, ...]) -> None:
    pairs = dict(setting.split("=", 1) for setting in settings if "=" in setting)
    if len(pairs) < len(settings):
        raise click.UsageError("--set takes NAME=VALUE")
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with ZooKeeper(version, pairs, port=port, heap=heap) as zookeeper:
            click.echo(f"ready zookeeper={zookeeper.connect_string} pid={zookeeper.pid}")
            signal.pause()
    except KeyboardInterrupt:
        click.echo("stopped", err=True)
    except (ZooKeeperFailed, JavaUnavailable) as error:
        raise click.ClickException(str(error)) from error


if __name__ == "__main__":
    main()
