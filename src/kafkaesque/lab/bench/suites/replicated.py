"""Three brokers, replication factor 3, acks=all: throughput and cost beside Apache Kafka.

Measured twice, with equal durability: from the page cache (ours `flush=never`, Kafka's defaults), and with
every batch synced before it counts (ours `flush=always`, Kafka `flush.messages=1`).
"""

from __future__ import annotations

from typing import Any, NamedTuple

from kafkaesque.lab.bench.clusters import BROKERS, REPLICAS, ClusterPeer, running_clusters
from kafkaesque.lab.bench.figures import Goal
from kafkaesque.lab.bench.load_process import run_load, warm_page_cache
from kafkaesque.lab.bench.peers import PeerOptions
from kafkaesque.lab.bench.report import BenchmarkReport
from kafkaesque.lab.bench.rounds import (
    BenchmarkOptions,
    Metered,
    new_report,
    note_other_load,
    round_robin,
    throughput_figures,
)

PARTITIONS = 6
"""Two per broker, so that every broker leads and follows."""
IN_FLIGHT = 5
TOPIC_CONFIGS = {"kafka": {"file.delete.delay.ms": "0"}}


class ReplicatedWorkload(NamedTuple):
    title: str
    kind: str
    record_bytes: int
    batch_bytes: int = 0


WORKLOADS = (
    ReplicatedWorkload("confluent-kafka client, 100 B records", "client_produce", 100),
    ReplicatedWorkload("confluent-kafka client, 1 kB records", "client_produce", 1000),
    ReplicatedWorkload("raw replay, 100 B records, 16 kB batches", "replay", 100, 16_384),
    ReplicatedWorkload("raw replay, 1 kB records, 16 kB batches", "replay", 1000, 16_384),
    ReplicatedWorkload("raw replay, 1 kB records, 1 MB batches", "replay", 1000, 1_000_000),
)


def run(options: BenchmarkOptions) -> BenchmarkReport:
    settings = {
        "acks": "all",
        "replication_factor": REPLICAS,
        "brokers": BROKERS,
        "partitions": PARTITIONS,
        "mb_per_turn": options.pick(200, 40),
        "mb_per_turn_synced": options.pick(60, 20),
    }
    report = new_report("replicated", options, settings)
    for is_synced in (False, True):
        label = "synced" if is_synced else "page cache"
        directory = options.directory / label.replace(" ", "-")
        with running_clusters(options.peers, PeerOptions(directory, durable=is_synced)) as clusters:
            report.peers |= {f"{one.name}, {label}": one.described for one in clusters}
            for workload in WORKLOADS:
                _measure(report, clusters, workload, label, options)
    for case in report.cases:
        report.compare(case, "mb_per_s", {"kafka": Goal("at least", 1.3)})
        report.compare(case, "server_cpu_s_per_gb", {"kafka": Goal("at most", 0.7)})
    note_other_load(report, report.cases)
    report.notes.append("CPU is of all brokers; a GB is counted once, not once a replica")
    return report


def _measure(
    report: BenchmarkReport,
    clusters: list[ClusterPeer],
    workload: ReplicatedWorkload,
    label: str,
    options: BenchmarkOptions,
) -> None:
    is_synced = label == "synced"
    volume_bytes = options.pick(*((60, 20) if is_synced else (200, 40))) * 1_000_000
    title = f"{label}: {workload.title}"
    for index, cluster in round_robin(clusters, options.rounds + 1):
        topic = f"r{index}-{workload.kind}-{workload.record_bytes}-{workload.batch_bytes}"
        figures = _turn(cluster, workload, topic, volume_bytes, options)
        if index > 0:
            report.case(title).add(cluster.name, figures)
            options.say(
                f"{title}: {cluster.name} {figures['mb_per_s']:.1f} MB/s, "
                f"{figures['server_cpu_s_per_gb']:.1f} CPU-s/GB"
            )


def _turn(
    cluster: ClusterPeer,
    workload: ReplicatedWorkload,
    topic: str,
    volume_bytes: int,
    options: BenchmarkOptions,
) -> dict[str, float]:
    cluster.create_topic(topic, PARTITIONS, TOPIC_CONFIGS.get(cluster.name))
    spec: dict[str, Any] = {
        "bootstrap": cluster.bootstrap,
        "addresses": cluster.leaders(topic),
        "topic": topic,
        "partitions": PARTITIONS,
        "record_bytes": workload.record_bytes,
        "acks": -1,
    }
    if workload.kind == "replay":
        count = max(1, volume_bytes // workload.batch_bytes // PARTITIONS)
        spec |= {"batch_bytes": workload.batch_bytes, "connections": PARTITIONS}
        spec |= {"in_flight": IN_FLIGHT, "count": count}
    else:
        spec["count"] = volume_bytes // workload.record_bytes
    warm_page_cache(options.directory, REPLICAS * volume_bytes)
    with Metered(cluster) as cost:
        load = run_load(workload.kind, spec)
    cluster.delete_topic(topic)
    return throughput_figures(load, cost)
