"""A real Apache ZooKeeper on this machine, from Maven or Debian, to compare with.

Configures and starts a standalone server or an ensemble and waits until it is ready; `java_server` has
the rest. Expectations about ZooKeeper's behaviour are in tests/conformance_zookeeper.

    with ZooKeeper() as zookeeper:
        KazooClient(hosts=zookeeper.connect_string)

    with ZooKeeperEnsemble() as ensemble:
        KazooClient(hosts=",".join(ensemble.addresses))

    python -m kafkaesque.testing.zookeeper --port 21810
    python -m kafkaesque.testing.zookeeper --version debian
"""

from __future__ import annotations

import socket
import time
from collections.abc import Mapping
from pathlib import Path

import click

from kafkaesque.service.child_process import log_tail
from kafkaesque.testing.java_server import (
    HOST,
    JavaServer,
    console_log,
    read_properties,
    run_in_foreground,
    take_port,
    wait_until_serving,
    write_properties,
)
from kafkaesque.testing.maven import JavaUnavailable, classpath
from kafkaesque.testing.reserved_ports import ReservedPorts

DEFAULT_VERSION = "3.9.3"
DEBIAN = "debian"
"""As a version: the one that Debian's package has installed."""
DEBIAN_JAR = Path("/usr/share/java/zookeeper.jar")
READY_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 10.0

DEFAULT_SETTINGS: Mapping[str, str] = {
    # Short sessions, so that tests of their expiry are short.
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
ENSEMBLE_SERVERS = 3
ENSEMBLE_SETTINGS = {
    "tickTime": "2000",
    "initLimit": "10",
    "syncLimit": "5",
    "4lw.commands.whitelist": "srvr",
    "admin.enableServer": "false",
}


class ZooKeeper(JavaServer):
    """One standalone server.

    `settings` are those of zoo.cfg and override `DEFAULT_SETTINGS`; port 0 takes a free one.
    """

    kind = "zookeeper"
    stop_timeout_s = STOP_TIMEOUT_S

    def __init__(
        self,
        version: str = DEFAULT_VERSION,
        settings: Mapping[str, str] | None = None,
        *,
        port: int = 0,
        heap: str = "256m",
    ) -> None:
        super().__init__()
        self.version = version
        self.port = port
        self._settings = {**DEFAULT_SETTINGS, **(settings or {})}
        self._heap = heap

    @property
    def connect_string(self) -> str:
        return f"{HOST}:{self.port}"

    def _resolve(self) -> str:
        return resolve(self.version)

    def _launch_all(self, java: str, jars: str, directory: Path) -> None:
        self.port = take_port(self.port)
        config = directory / "zoo.cfg"
        addresses = {
            "dataDir": str(directory / "data"),
            "clientPort": str(self.port),
            "clientPortAddress": HOST,
        }
        write_properties(config, addresses | self._settings)
        options = [f"-Xmx{self._heap}", "-XX:TieredStopAtLevel=1"]
        options += [f"-D{name}={value}" for name, value in DEFAULT_PROPERTIES.items()]
        main = ["org.apache.zookeeper.server.ZooKeeperServerMain", str(config)]
        self._launch(java, jars, directory, options, main)

    def _wait_until_ready(self) -> None:
        (process,) = self._processes
        wait_until_serving(
            lambda: b"Mode:" in srvr(self.port),
            process,
            time.monotonic() + READY_TIMEOUT_S,
            lambda: log_tail(console_log(self.directory)),
        )


class ZooKeeperEnsemble(JavaServer):
    """Three servers of one ensemble with ZooKeeper's own defaults, which sync every write."""

    kind = "zookeeper-ensemble"
    stop_timeout_s = 20.0

    def __init__(self, version: str = DEFAULT_VERSION, *, heap: str = "512m") -> None:
        super().__init__()
        self.version = version
        self._heap = heap
        self._ports = ReservedPorts(3 * ENSEMBLE_SERVERS)

    @property
    def addresses(self) -> tuple[str, ...]:
        return tuple(f"{HOST}:{port}" for port in self._ports.numbers[:ENSEMBLE_SERVERS])

    def stop(self) -> None:
        super().stop()
        self._ports.close()

    def _resolve(self) -> str:
        return resolve(self.version)

    def _launch_all(self, java: str, jars: str, directory: Path) -> None:
        ports = self._ports.numbers
        servers = {
            f"server.{n + 1}": f"{HOST}:{ports[ENSEMBLE_SERVERS + n]}:{ports[2 * ENSEMBLE_SERVERS + n]}"
            for n in range(ENSEMBLE_SERVERS)
        }
        for number in range(ENSEMBLE_SERVERS):
            home = directory / str(number)
            home.mkdir()
            (home / "myid").write_text(f"{number + 1}\n")
            own = {
                "dataDir": str(home),
                "clientPort": str(ports[number]),
                "clientPortAddress": HOST,
            }
            config = directory / f"{number}.cfg"
            write_properties(config, ENSEMBLE_SETTINGS | own | servers)
            main = ["org.apache.zookeeper.server.quorum.QuorumPeerMain", str(config)]
            self._launch(java, jars, directory, [f"-Xmx{self._heap}"], main)

    def _wait_until_ready(self) -> None:
        deadline_s = time.monotonic() + READY_TIMEOUT_S
        for process in self._processes:
            wait_until_serving(
                self._all_serve,
                process,
                deadline_s,
                lambda: log_tail(console_log(self.directory)),
            )

    def _all_serve(self) -> bool:
        return all(b"Mode:" in srvr(port) for port in self._ports.numbers[:ENSEMBLE_SERVERS])


def srvr(port: int) -> bytes:
    """The answer of a server on this machine to `srvr`; empty if there is none.

    It has a line `Mode:` once the server serves.
    """
    try:
        with socket.create_connection((HOST, port), timeout=5) as link:
            link.sendall(b"srvr")
            answer = b""
            while chunk := link.recv(4096):
                answer += chunk
            return answer
    except OSError:
        return b""


def resolve(version: str) -> str:
    """The classpath of that version; jars are fetched if they are not in the local repository."""
    if version == DEBIAN:
        if not DEBIAN_JAR.exists():
            raise JavaUnavailable(f"{DEBIAN_JAR} does not exist: apt install zookeeper")
        return str(DEBIAN_JAR)  # its manifest names the other jars
    return classpath(
        (
            f"org.apache.zookeeper:zookeeper:{version}",
            # Declared as optional, but needed by the server.
            "io.dropwizard.metrics:metrics-core:4.1.12.1",
            "org.xerial.snappy:snappy-java:1.1.10.5",
        )
    )


@click.command(help="Run an Apache ZooKeeper in the foreground until Ctrl-C.")
@click.option(
    "--version", default=DEFAULT_VERSION, show_default=True, help="One of Maven's, or `debian`."
)
@click.option("--port", default=0, help="Client port; 0 takes a free one.")
@click.option("--heap", default="256m", show_default=True, help="Heap of the JVM.")
@click.option("--set", "settings", multiple=True, metavar="NAME=VALUE", help="A line of zoo.cfg.")
def main(version: str, port: int, heap: str, settings: tuple[str, ...]) -> None:
    server = ZooKeeper(version, read_properties(settings), port=port, heap=heap)
    run_in_foreground(server, lambda: {"zookeeper": server.connect_string})


if __name__ == "__main__":
    main()
