"""Reads and writes per second of three coordination servers, beside three of Apache ZooKeeper.

Both are measured with the same client (kazoo), in turns. Both sync a write on a majority before they
acknowledge it; both answer a read from the server that receives it.
"""

from __future__ import annotations

from typing import NamedTuple

from kafkaesque.lab.bench.coordination_servers import CoordinationPeer, running_coordinations
from kafkaesque.lab.bench.load_process import run_load
from kafkaesque.lab.bench.report import BenchmarkReport
from kafkaesque.lab.bench.rounds import BenchmarkOptions, Metered, new_report, round_robin

NODE_BYTES = 100


class ZnodeWorkload(NamedTuple):
    title: str
    kind: str
    clients: int
    in_flight: int
    operations: int
    quick_operations: int


WORKLOADS = (
    ZnodeWorkload("reads, one at a time", "read", 1, 1, 6_000, 1_000),
    ZnodeWorkload("writes, one at a time", "write", 1, 1, 3_000, 300),
    ZnodeWorkload("reads, 6 clients, 32 in flight each", "read", 6, 32, 60_000, 6_000),
    ZnodeWorkload("writes, 6 clients, 32 in flight each", "write", 6, 32, 30_000, 3_000),
)


def run(options: BenchmarkOptions) -> BenchmarkReport:
    settings = {"servers": 3, "client": "kazoo", "node_bytes": NODE_BYTES}
    report = new_report("coordination", options, settings)
    with running_coordinations(options.peers, options.directory / "coordination") as peers:
        report.peers = {peer.name: peer.described for peer in peers}
        for workload in WORKLOADS:
            for index, peer in round_robin(peers, options.rounds + 1):
                figures = _measure(peer, workload, options)
                if index > 0:
                    report.case(workload.title).add(peer.name, figures)
                    options.say(
                        f"{workload.title}: {peer.name} {figures['per_s']:.0f}/s, "
                        f"p99 {figures['p99_ms']:.2f} ms"
                    )
    for case in report.cases:
        for figure in ("per_s", "p50_ms", "p99_ms", "server_cpu_us_each"):
            report.compare(case, figure, {"zookeeper": None, "zookeeper-debian": None})
    report.notes.append("kazoo is the limit of many reads: it takes a whole core itself")
    return report


def _measure(
    peer: CoordinationPeer, workload: ZnodeWorkload, options: BenchmarkOptions
) -> dict[str, float]:
    spec = {
        "servers": peer.servers,
        "kind": workload.kind,
        "clients": workload.clients,
        "in_flight": workload.in_flight,
        "count": options.pick(workload.operations, workload.quick_operations),
        "node_bytes": NODE_BYTES,
    }
    with Metered(peer) as cost:
        load = run_load("znodes", spec)
    return {
        "per_s": load["operations"] / load["elapsed_s"],
        "p50_ms": load["p50_ms"],
        "p99_ms": load["p99_ms"],
        "server_cpu_us_each": cost.server_cpu_s / load["operations"] * 1e6,
        "client_cpu_cores": load["process_cpu_s"] / cost.elapsed_s,
    }
