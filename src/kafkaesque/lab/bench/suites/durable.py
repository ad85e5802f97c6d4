"""Many producers at once, every record on disk before it is acknowledged (acks=all)."""

from __future__ import annotations

from kafkaesque.lab.bench import requests
from kafkaesque.lab.bench.figures import Goal
from kafkaesque.lab.bench.load_process import run_load
from kafkaesque.lab.bench.peers import PeerOptions, running
from kafkaesque.lab.bench.report import BenchmarkReport
from kafkaesque.lab.bench.rounds import (
    BenchmarkOptions,
    Metered,
    new_report,
    note_other_load,
    round_robin,
)

CONNECTIONS = 64
PARTITIONS = 4
TOPIC = "durable"
CASE = f"{CONNECTIONS} connections, one record of 100 B in flight each, acks=all"


def run(options: BenchmarkOptions) -> BenchmarkReport:
    count = options.pick(200, 40)
    settings = {"acks": "all", "connections": CONNECTIONS, "partitions": PARTITIONS}
    report = new_report("durable", options, {**settings, "records_per_connection": count})
    peer_options = PeerOptions(options.directory, durable=True, loop=options.loop)
    with running(options.peers, peer_options) as peers:
        report.peers = {peer.name: peer.described for peer in peers}
        for peer in peers:
            if peer.has_topics:
                requests.create_topic(peer.host, peer.port, TOPIC, PARTITIONS)
        for index, peer in round_robin(peers, options.rounds + 1):
            spec = {
                "host": peer.host,
                "port": peer.port,
                "topic": TOPIC,
                "partitions": PARTITIONS,
                "connections": CONNECTIONS,
                "record_bytes": 100,
                "batch_bytes": 0,
                "count": count,
                "in_flight": 1,
                "acks": -1,
            }
            with Metered(peer) as cost:
                load = run_load("replay", spec)
            if index > 0:
                report.case(CASE).add(
                    peer.name,
                    {
                        "records_per_s": load["records"] / load["elapsed_s"],
                        "p50_ms": load["p50_ms"],
                        "p99_ms": load["p99_ms"],
                        "server_cpu_us_per_record": cost.server_cpu_s / load["records"] * 1e6,
                    },
                )
                options.say(
                    f"{peer.name}: {load['records'] / load['elapsed_s']:.0f} records/s, "
                    f"p99 {load['p99_ms']:.1f} ms"
                )
    case = report.case(CASE)
    report.compare(case, "records_per_s", {"kafka": Goal("at least", 1.0), "floor": None})
    report.compare(case, "p99_ms", {"kafka": Goal("at most", 1.0), "floor": None})
    note_other_load(report, report.cases)
    return report
