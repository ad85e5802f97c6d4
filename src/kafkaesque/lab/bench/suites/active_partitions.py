"""Many partitions that all receive records, each synced on a majority before it is acknowledged."""

from __future__ import annotations

import os
from typing import Any

from kafkaesque.lab.bench.clusters import BROKERS, REPLICAS, OurCluster, our_cluster
from kafkaesque.lab.bench.load_process import run_load
from kafkaesque.lab.bench.report import BenchmarkReport
from kafkaesque.lab.bench.rounds import BenchmarkOptions, Metered, new_report, note_other_load

TOPIC = "active"
RECORD_BYTES = 100
IN_FLIGHT = 200
"""Requests in flight per broker, on one connection that represents those of many producers."""
LINGER_S = 0.01
"""Records that become due for one broker within this time share a request (Java: 5 ms)."""
COUNTERS = ("kafkaesque_log_syncs_total", "kafkaesque_raft_journal_syncs_total")


def run(options: BenchmarkOptions) -> BenchmarkReport:
    partitions, duration_s = options.pick(1_000, 60), options.pick(20, 3)
    full, light = options.pick(10_000, 500), options.pick(2_500, 100)
    settings = {
        "brokers": BROKERS,
        "replication_factor": REPLICAS,
        "partitions": partitions,
        "records_per_s": (full, light),
        "record_bytes": RECORD_BYTES,
        "duration_s": duration_s,
    }
    report = new_report("active-partitions", options, settings)
    for is_synced, label in ((True, "synced before acknowledged"), (False, "page cache")):
        directory = options.directory / f"active-{is_synced}"
        with our_cluster(directory, durable=is_synced) as cluster:
            report.peers[f"ours, {label}"] = cluster.described
            cluster.create_topic(TOPIC, partitions)
            run_load("paced", _spec(cluster, full, options.pick(5, 1)))
            for rate in (full, light):
                case = report.case(f"{partitions:,} partitions, {rate:,} records/s, {label}")
                for _ in range(options.rounds):
                    figures = _measure(cluster, _spec(cluster, rate, duration_s))
                    case.add("ours", figures)
                    options.say(f"{case.title}: {figures}")
    note_other_load(report, report.cases)
    report.notes.append(
        "latency of a request from when its records were due; fsyncs of all brokers"
    )
    return report


def _spec(cluster: OurCluster, rate: int, duration_s: int) -> dict[str, Any]:
    return {
        "topic": TOPIC,
        "addresses": cluster.leaders(TOPIC),
        "record_bytes": RECORD_BYTES,
        "batch_bytes": 0,
        "partitions_per_request": max(1, int(rate * LINGER_S / BROKERS)),
        "records_per_s": rate,
        "duration_s": duration_s,
        "in_flight": IN_FLIGHT,
        "acks": -1,
    }


def _measure(cluster: OurCluster, spec: dict[str, Any]) -> dict[str, float]:
    before = _counts(cluster)
    with Metered(cluster) as cost:
        load = run_load("paced", spec)
    syncs = {name: count - before[name] for name, count in _counts(cluster).items()}
    return {
        "records_per_s": load["records"] / load["elapsed_s"],
        **{name: load[name] for name in ("p50_ms", "p99_ms", "max_ms")},
        "fsyncs_per_s": syncs["kafkaesque_log_syncs_total"] / load["elapsed_s"],
        "fsyncs_per_1000_records": syncs["kafkaesque_log_syncs_total"] / load["records"] * 1000,
        "journal_fsyncs_per_s": syncs["kafkaesque_raft_journal_syncs_total"] / load["elapsed_s"],
        "server_cpu_us_per_record": cost.server_cpu_s / load["records"] * 1e6,
        "server_cpu_cores": cost.server_cpu_s / load["elapsed_s"],
        "generator_cpu_cores": load["cpu_s"] / load["elapsed_s"],
        "strangers_cpu_share": cost.others_share(load["process_cpu_s"], os.cpu_count() or 1),
    }


def _counts(cluster: OurCluster) -> dict[str, float]:
    scrapes = [cluster.scrape(number) for number in range(BROKERS)]
    return {name: sum(one.sum(name) for one in scrapes) for name in COUNTERS}
