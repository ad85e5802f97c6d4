"""Recovery of a broker that lost its disk: its speed, and the effect on producers."""

from __future__ import annotations

import time
from typing import Any

from kafkaesque.lab.bench.clusters import BROKERS, REPLICAS, OurCluster, our_cluster
from kafkaesque.lab.bench.load_process import BackgroundLoad, run_load
from kafkaesque.lab.bench.raw_load import LoadFailed
from kafkaesque.lab.bench.recovery import fill, stored_bytes, wait_until_stored
from kafkaesque.lab.bench.report import BenchmarkReport
from kafkaesque.lab.bench.rounds import BenchmarkOptions, new_report
from kafkaesque.lab.bench.routing import partitions_of
from kafkaesque.testing.waiting import poll_until

TOPIC = "wiped"
VICTIM = 2
MIB = 1 << 20
TIMEOUT_S = 300.0
POLL_S = 0.1
RECORDS_PER_S = 1_000
LINGER_S = 0.01


def run(options: BenchmarkOptions) -> BenchmarkReport:
    partitions = options.pick(60, 6)
    size_mib = options.pick(options.size_mib or 1024, 16)
    baseline_s = options.pick(10, 2)
    settings = {
        "rounds": 1,
        "brokers": BROKERS,
        "replication_factor": REPLICAS,
        "partitions": partitions,
        "size_mib": size_mib,
        "records_per_s": RECORDS_PER_S,
    }
    report = new_report("wiped-replica", options, settings)
    case = report.case(f"{size_mib:,} MiB in {partitions} partitions, {RECORDS_PER_S:,} records/s")
    with our_cluster(options.directory / "wiped") as cluster:
        report.peers["ours"] = cluster.described
        figures = _recover(cluster, partitions, size_mib * MIB, baseline_s)
    case.add("ours", figures)
    options.say(f"{case.title}: {figures}")
    report.notes.append(
        "recovery: from exec of the empty broker until it has all that another had at that time"
    )
    return report


def _recover(
    cluster: OurCluster, partitions: int, size_bytes: int, baseline_s: float
) -> dict[str, float]:
    cluster.create_topic(TOPIC, partitions)
    fill(cluster, TOPIC, size_bytes)
    cluster.kill(VICTIM)
    cluster.wipe(VICTIM)
    poll_until(
        lambda: len(_led_by_others(cluster)) == partitions,
        "other leaders of every partition",
        TIMEOUT_S,
        poll_s=POLL_S,
        error=LoadFailed,
    )
    spec = _spec(cluster)
    before = run_load("paced", spec | {"duration_s": baseline_s})
    stored = stored_bytes(cluster.scrape(0))
    load = BackgroundLoad("paced", spec | {"duration_s": TIMEOUT_S, "may_fail": True})
    try:
        started = time.perf_counter()
        cluster.launch(VICTIM)
        cluster.wait_ready(VICTIM)
        ready_s = time.perf_counter() - started
        # Waits for the bytes, not for membership in the ISR, which tolerates some lag.
        wait_until_stored(cluster, VICTIM, stored)
        recovered_s = time.perf_counter() - started
        during = load.end()
    finally:
        load.abandon()
    return {
        "recovered_mb": stored / 1e6,
        "ready_s": ready_s,
        "recovered_s": recovered_s,
        "recovery_mb_per_s": stored / 1e6 / recovered_s,
        "p50_ms_before": before["p50_ms"],
        "p99_ms_before": before["p99_ms"],
        "p50_ms_during": during["p50_ms"],
        "p99_ms_during": during["p99_ms"],
        "max_ms_during": during["max_ms"],
        "errors_during": during["errors"],
    }


def _led_by_others(cluster: OurCluster) -> list[str]:
    victim = cluster.addresses[VICTIM]
    rows = partitions_of(cluster.addresses[0], TOPIC)
    return [row.leader for row in rows if row.leader not in ("", victim)]


def _spec(cluster: OurCluster) -> dict[str, Any]:
    return {
        "topic": TOPIC,
        "addresses": cluster.leaders(TOPIC),
        "record_bytes": 100,
        "batch_bytes": 0,
        "partitions_per_request": max(1, int(RECORDS_PER_S * LINGER_S / 2)),
        "records_per_s": RECORDS_PER_S,
        "in_flight": 5,
        "acks": -1,
    }
