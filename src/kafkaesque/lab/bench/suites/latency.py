"""Round-trip time of a single acknowledged record, one at a time."""

from __future__ import annotations

from kafkaesque.lab.bench import requests
from kafkaesque.lab.bench.figures import Goal
from kafkaesque.lab.bench.load_process import run_load
from kafkaesque.lab.bench.peers import PeerOptions, running
from kafkaesque.lab.bench.report import BenchmarkReport
from kafkaesque.lab.bench.rounds import BenchmarkOptions, Metered, new_report, round_robin

CASE = "one record of 100 B in flight, acks=1"
TOPIC = "latency"


def run(options: BenchmarkOptions) -> BenchmarkReport:
    count = options.pick(10_000, 2_000)
    report = new_report("latency", options, {"acks": 1, "record_bytes": 100, "count": count})
    with running(options.peers, PeerOptions(options.directory, loop=options.loop)) as peers:
        report.peers = {peer.name: peer.described for peer in peers}
        for peer in peers:
            if peer.has_topics:
                requests.create_topic(peer.host, peer.port, TOPIC, 1)
        for _, peer in round_robin(peers, options.rounds):
            spec = {"host": peer.host, "port": peer.port, "topic": TOPIC, "record_bytes": 100}
            with Metered(peer) as cost:
                # Apache Kafka needs tens of thousands of requests before its compiler is done.
                load = run_load("latency", spec | {"acks": 1, "count": count, "warm_up": count})
            figures = {name: load[name] for name in ("p50_ms", "p99_ms", "p999_ms")}
            figures["server_cpu_us_per_request"] = cost.server_cpu_s / (2 * count) * 1e6
            report.case(CASE).add(peer.name, figures)
            options.say(f"{peer.name}: p50 {load['p50_ms']:.3f} ms, p99 {load['p99_ms']:.3f} ms")
    goals: dict[str, Goal | None] = {"floor": Goal("at most", 2.0), "kafka": Goal("at most", 1.0)}
    for figure in ("p50_ms", "p99_ms"):
        report.compare(report.case(CASE), figure, goals)
    return report
