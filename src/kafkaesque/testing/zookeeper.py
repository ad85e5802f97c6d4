"""A real Apache ZooKeeper on this machine, from Maven artefacts: the oracle of our coordination.

Lives here: what one standalone server is started with and when it is ready (`java_server` has the
rest). No expectation about its behaviour lives here (tests/conformance_zookeeper does that).

    with ZooKeeper() as zookeeper:
        KazooClient(hosts=zookeeper.connect_string)

    python -m kafkaesque.testing.zookeeper --port 21810
"""

from __future__ import annotations

import socket
import time
from collections.abc import Mapping
from pathlib import Path

import click

from kafkaesque.testing.java_server import (
    HOST,
    JavaServer,
    console_log,
    last_words,
    read_properties,
    run_in_foreground,
    take_port,
    wait_until_serving,
    write_properties,
)
from kafkaesque.testing.maven import classpath

DEFAULT_VERSION = "3.9.3"
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


class ZooKeeper(JavaServer):
    """One standalone server.

    `settings` are those of zoo.cfg and win over `DEFAULT_SETTINGS`; port 0 takes a free one.
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
            lambda: last_words(console_log(self.directory)),
        )


def srvr(port: int) -> bytes:
    """What a server on this machine says of itself; nothing while nobody listens.

    It has a line `Mode:` once it serves; before that it says that it does not.
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
    """The classpath of that ZooKeeper, fetched if it is not here yet."""
    return classpath(
        (
            f"org.apache.zookeeper:zookeeper:{version}",
            # Optional in its own list, and needed by the server all the same.
            "io.dropwizard.metrics:metrics-core:4.1.12.1",
            "org.xerial.snappy:snappy-java:1.1.10.5",
        )
    )


@click.command(help="Run an Apache ZooKeeper in the foreground until Ctrl-C.")
@click.option("--version", default=DEFAULT_VERSION, show_default=True)
@click.option("--port", default=0, help="Client port; 0 takes a free one.")
@click.option("--heap", default="256m", show_default=True, help="Heap of the JVM.")
@click.option("--set", "settings", multiple=True, metavar="NAME=VALUE", help="A line of zoo.cfg.")
def main(version: str, port: int, heap: str, settings: tuple[str, ...]) -> None:
    server = ZooKeeper(version, read_properties(settings), port=port, heap=heap)
    run_in_foreground(server, lambda: f"zookeeper={server.connect_string}")


if __name__ == "__main__":
    main()
