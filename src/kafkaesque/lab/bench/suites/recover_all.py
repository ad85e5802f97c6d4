"""kill -9 of all brokers with many partitions and much data: time until records are acknowledged again."""

from __future__ import annotations

import time

from kafkaesque.lab.bench.clusters import BROKERS, REPLICAS, OurCluster, our_cluster
from kafkaesque.lab.bench.recovery import fill, stored_bytes, wait_until_acknowledged
from kafkaesque.lab.bench.report import BenchmarkReport
from kafkaesque.lab.bench.rounds import BenchmarkOptions, new_report

TOPIC = "recover"
TIMEOUT_S = 300.0
MIB = 1 << 20


def run(options: BenchmarkOptions) -> BenchmarkReport:
    partitions = options.pick(1_000, 30)
    size_mib = options.pick(options.size_mib or 1024, 16)
    settings = {
        "brokers": BROKERS,
        "replication_factor": REPLICAS,
        "partitions": partitions,
        "size_mib_per_broker": size_mib,
    }
    report = new_report("recover-all", options, {**settings, "rounds": 1})
    for is_synced, label in ((True, "flush=always"), (False, "flush=never")):
        case = report.case(f"{partitions:,} partitions, {size_mib:,} MiB on each broker, {label}")
        with our_cluster(options.directory / "recover", durable=is_synced) as cluster:
            report.peers[f"ours, {label}"] = cluster.described
            figures = _recover(cluster, partitions, size_mib * MIB)
        case.add("ours", figures)
        options.say(f"{case.title}: {figures}")
    report.notes.append("seconds since the exec of the brokers, which were all killed at once")
    return report


def _recover(cluster: OurCluster, partitions: int, size_bytes: int) -> dict[str, float]:
    cluster.create_topic(TOPIC, partitions)
    fill_s = fill(cluster, TOPIC, size_bytes)
    stored = stored_bytes(cluster.scrape(0))
    cluster.kill()
    started = time.perf_counter()
    cluster.launch()
    seen = wait_until_acknowledged(
        cluster.addresses, TOPIC, range(partitions), started=started, timeout_s=TIMEOUT_S
    )
    cluster.wait_ready()
    return {
        "fill_s": fill_s,
        "stored_mb_per_broker": stored / 1e6,
        **seen.figures(),
        "ready_s": time.perf_counter() - started,
        "cpu_s_per_broker": cluster.cpu_seconds() / BROKERS,
        "rss_mb_per_broker": cluster.rss_bytes() / 1e6 / BROKERS,
    }
