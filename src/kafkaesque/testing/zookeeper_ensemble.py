"""Three servers of a real Apache ZooKeeper on this machine, with their own defaults.

    with ZooKeeperEnsemble() as ensemble:
        KazooClient(hosts=",".join(ensemble.addresses))

One standalone server with short sessions, as the conformance tests want it, is in `zookeeper`.
"""

from __future__ import annotations

import time
from pathlib import Path

from kafkaesque.testing.java_server import (
    JavaServer,
    console_log,
    last_words,
    wait_until_serving,
    write_properties,
)
from kafkaesque.testing.reserved_ports import HOST, ReservedPorts
from kafkaesque.testing.zookeeper import DEFAULT_VERSION, READY_TIMEOUT_S, resolve, srvr

SERVERS = 3
_SETTINGS = {
    "tickTime": "2000",
    "initLimit": "10",
    "syncLimit": "5",
    "4lw.commands.whitelist": "srvr",
    "admin.enableServer": "false",
}


class ZooKeeperEnsemble(JavaServer):
    """All servers of one ensemble; each syncs a write before it counts, as ZooKeeper does."""

    kind = "zookeeper-ensemble"
    stop_timeout_s = 20.0

    def __init__(self, version: str = DEFAULT_VERSION, *, heap: str = "512m") -> None:
        super().__init__()
        self.version = version
        self._heap = heap
        self._ports = ReservedPorts(3 * SERVERS)

    @property
    def addresses(self) -> tuple[str, ...]:
        return tuple(f"{HOST}:{port}" for port in self._ports.numbers[:SERVERS])

    def stop(self) -> None:
        super().stop()
        self._ports.close()

    def _resolve(self) -> str:
        return resolve(self.version)

    def _launch_all(self, java: str, jars: str, directory: Path) -> None:
        ports = self._ports.numbers
        servers = {
            f"server.{n + 1}": f"{HOST}:{ports[SERVERS + n]}:{ports[2 * SERVERS + n]}"
            for n in range(SERVERS)
        }
        for number in range(SERVERS):
            home = directory / str(number)
            home.mkdir()
            (home / "myid").write_text(f"{number + 1}\n")
            own = {
                "dataDir": str(home),
                "clientPort": str(ports[number]),
                "clientPortAddress": HOST,
            }
            config = directory / f"{number}.cfg"
            write_properties(config, _SETTINGS | own | servers)
            main = ["org.apache.zookeeper.server.quorum.QuorumPeerMain", str(config)]
            self._launch(java, jars, directory, [f"-Xmx{self._heap}"], main)

    def _wait_until_ready(self) -> None:
        deadline_s = time.monotonic() + READY_TIMEOUT_S
        for process in self._processes:
            wait_until_serving(
                self._all_serve,
                process,
                deadline_s,
                lambda: last_words(console_log(self.directory)),
            )

    def _all_serve(self) -> bool:
        return all(b"Mode:" in srvr(port) for port in self._ports.numbers[:SERVERS])
