"""Reads and writes per second of three brokers beside an ensemble of three Apache ZooKeepers.

    python -m tests.conformance_zookeeper.compare_speed

The same client, kazoo, in turns; on the same disk, both sync before they answer. Prints one JSON
object. kazoo is a good part of the cost, so what counts is the ratio.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from kazoo.client import KazooClient

from kafkaesque.testing.cluster_layout import HOST, ReservedPorts
from kafkaesque.testing.maven import require_tool
from kafkaesque.testing.zookeeper import resolve

from .brokers import Brokers
from .waiting import eventually

ROUNDS = 3
WRITES, SINGLE_WRITES, READS = 2000, 100, 4000
OUTSTANDING = 200


class Ensemble:
    """Three servers of Apache ZooKeeper."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        ports = ReservedPorts(9)
        self.clients = ports.numbers[:3]
        self._peers = ports.numbers[3:6]
        self._votes = ports.numbers[6:]
        ports.close()
        self._processes: list[subprocess.Popen[bytes]] = []

    @property
    def addresses(self) -> list[str]:
        return [f"{HOST}:{port}" for port in self.clients]

    def start(self) -> None:
        java, jars = require_tool("java"), resolve("3.9.3")
        for number in range(3):
            home = self._directory / str(number)
            home.mkdir()
            (home / "myid").write_text(str(number + 1))
            lines = [
                f"dataDir={home}",
                f"clientPort={self.clients[number]}",
                f"clientPortAddress={HOST}",
                "tickTime=2000",
                "initLimit=10",
                "syncLimit=5",
                "admin.enableServer=false",
                *(f"server.{n + 1}={HOST}:{self._peers[n]}:{self._votes[n]}" for n in range(3)),
            ]
            (home / "zoo.cfg").write_text("\n".join(lines))
            with (home / "console.log").open("wb") as log:
                self._processes.append(
                    subprocess.Popen(
                        [
                            java, "-Xmx256m", "-cp", jars,
                            "org.apache.zookeeper.server.quorum.QuorumPeerMain",
                            str(home / "zoo.cfg"),
                        ],
                        stdout=log, stderr=log,
                    )
                )  # fmt: skip

    def stop(self) -> None:
        for process in self._processes:
            process.kill()
            process.wait()


def rate(count: int, begin: Callable[[], object]) -> float:
    """Per second, with many under way at once."""
    started = time.perf_counter()
    under_way: list[object] = []
    for _ in range(count):
        under_way.append(begin())
        if len(under_way) >= OUTSTANDING:
            under_way.pop(0).get(60)  # type: ignore[attr-defined]
    for result in under_way:
        result.get(60)  # type: ignore[attr-defined]
    return count / (time.perf_counter() - started)


def measure(address: str) -> dict[str, float]:
    client = KazooClient(hosts=address)
    client.start(timeout=30)
    client.ensure_path("/bench")
    single = time.perf_counter()
    for number in range(SINGLE_WRITES):
        client.set("/bench", b"%d" % number)
    single_rate = SINGLE_WRITES / (time.perf_counter() - single)
    figures = {
        "writes_per_s_one_at_a_time": single_rate,
        "writes_per_s": rate(WRITES, lambda: client.set_async("/bench", b"x" * 100)),
        "reads_per_s": rate(READS, lambda: client.get_async("/bench")),
    }
    client.stop()
    client.close()
    return figures


def main() -> None:
    found: dict[str, list[dict[str, float]]] = {"kafkaesque": [], "zookeeper": []}
    with tempfile.TemporaryDirectory() as place, Brokers(Path(place) / "ours") as brokers:
        ensemble = Ensemble(Path(place))
        ensemble.start()
        try:
            eventually(
                lambda: KazooClient(hosts=ensemble.addresses[0]).start(timeout=30) is None, 60
            )
            for number in range(ROUNDS):
                found["kafkaesque"].append(measure(brokers.address(number % 3)))
                found["zookeeper"].append(measure(ensemble.addresses[number % 3]))
        finally:
            ensemble.stop()
    medians = {
        name: {key: round(statistics.median(row[key] for row in rows)) for key in rows[0]}
        for name, rows in found.items()
    }
    ratios = {
        key: round(value / medians["zookeeper"][key], 2)
        for key, value in medians["kafkaesque"].items()
    }
    json.dump({**medians, "ratio": ratios}, sys.stdout)
    sys.stdout.write("\n")


if __name__ == "__main__":
    main()
