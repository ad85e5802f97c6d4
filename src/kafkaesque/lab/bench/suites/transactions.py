"""The cost of transactions: the same client with and without them, ours and Apache Kafka."""

from __future__ import annotations

from typing import Any

from kafkaesque.lab.bench import requests
from kafkaesque.lab.bench.figures import Goal
from kafkaesque.lab.bench.load_process import run_load
from kafkaesque.lab.bench.peers import Peer, PeerOptions, running
from kafkaesque.lab.bench.report import BenchmarkReport
from kafkaesque.lab.bench.rounds import (
    BenchmarkOptions,
    Metered,
    new_report,
    note_other_load,
    round_robin,
    throughput_figures,
)

PARTITIONS = 2
RECORD_BYTES = 100
PER_TRANSACTION = 1000
PLAIN = "idempotent, acks=all, 100 B records (confluent-kafka)"
TRANSACTIONS = "the same in transactions of 1,000 records"
SHARE = "share_of_plain"
"""Records per second in transactions, divided by those without in the same round on the same server."""


def run(options: BenchmarkOptions) -> BenchmarkReport:
    count = options.pick(500_000, 60_000)
    settings = {
        "acks": "all",
        "partitions": PARTITIONS,
        "record_bytes": RECORD_BYTES,
        "records_per_transaction": PER_TRANSACTION,
        "records_per_turn": count,
    }
    report = new_report("transactions", options, settings)
    with running(options.peers, PeerOptions(options.directory, loop=options.loop)) as peers:
        report.peers = {peer.name: peer.described for peer in peers}
        for index, peer in round_robin(peers, options.rounds + 1):
            plain = _measure(peer, "client_idempotent", f"plain-{index}", count)
            inside = _measure(peer, "client_transactions", f"transactions-{index}", count)
            inside[SHARE] = inside["records_per_s"] / plain["records_per_s"]
            if index > 0:
                report.case(PLAIN).add(peer.name, plain)
                report.case(TRANSACTIONS).add(peer.name, inside)
                options.say(
                    f"{peer.name}: {inside['records_per_s']:.0f} records/s in transactions, "
                    f"{plain['records_per_s']:.0f} without, {inside[SHARE]:.0%}"
                )
    _compare(report)
    return report


def _compare(report: BenchmarkReport) -> None:
    for case in report.cases:
        report.compare(case, "records_per_s", {"kafka": None})
        report.compare(case, "server_cpu_s_per_gb", {"kafka": None})
    report.compare(report.case(TRANSACTIONS), SHARE, {"kafka": Goal("at least", 1.0)})
    note_other_load(report, report.cases)
    report.notes.append(
        "one transaction at a time, so each waits for its commit: the share says what a commit costs"
    )


def _measure(peer: Peer, kind: str, topic: str, count: int) -> dict[str, float]:
    requests.create_topic(peer.host, peer.port, topic, PARTITIONS, None)
    spec: dict[str, Any] = {
        "host": peer.host,
        "port": peer.port,
        "topic": topic,
        "partitions": PARTITIONS,
        "record_bytes": RECORD_BYTES,
        "count": count,
        "per_transaction": PER_TRANSACTION,
    }
    with Metered(peer) as cost:
        load = run_load(kind, spec)
    requests.delete_topic(peer.host, peer.port, topic)
    figures = throughput_figures(load, cost)
    if "transactions" in load:
        figures["ms_per_transaction"] = load["elapsed_s"] * 1000 / load["transactions"]
    return figures
