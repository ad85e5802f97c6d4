"""Produce throughput and cost: raw replay of client-sized batches, and a real client."""

from __future__ import annotations

from typing import Any, NamedTuple

from kafkaesque.lab.bench import requests
from kafkaesque.lab.bench.figures import Goal
from kafkaesque.lab.bench.load_process import run_load, warm_page_cache
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
CONNECTIONS = 2
IN_FLIGHT = 5
"""As in librdkafka and Java: one connection per client, five requests in flight."""
LIBRDKAFKA_BATCH_BYTES = 1_000_000
JAVA_BATCH_BYTES = 16_384
# Pages of deleted files should be freed before the next turn starts.
TOPIC_CONFIGS = {"kafka": {"file.delete.delay.ms": "0"}}


class ProduceWorkload(NamedTuple):
    title: str
    kind: str
    record_bytes: int
    batch_bytes: int


WORKLOADS = (
    ProduceWorkload(
        "raw replay, 100 B records, 1 MB batches (librdkafka)", "replay", 100, 1_000_000
    ),
    ProduceWorkload(
        "raw replay, 1 kB records, 1 MB batches (librdkafka)", "replay", 1000, 1_000_000
    ),
    ProduceWorkload(
        "raw replay, 100 B records, 16 kB batches (Java)", "replay", 100, JAVA_BATCH_BYTES
    ),
    ProduceWorkload(
        "raw replay, 1 kB records, 16 kB batches (Java)", "replay", 1000, JAVA_BATCH_BYTES
    ),
    ProduceWorkload("confluent-kafka client, 100 B records", "client_produce", 100, 0),
    ProduceWorkload("confluent-kafka client, 1 kB records", "client_produce", 1000, 0),
)


def run(options: BenchmarkOptions) -> BenchmarkReport:
    settings = {
        "acks": 1,
        "partitions": PARTITIONS,
        "raw_connections": CONNECTIONS,
        "raw_in_flight": IN_FLIGHT,
        "raw_mb_per_turn": options.pick(1000, 200),
        "client_mb_per_turn": options.pick(300, 60),
    }
    report = new_report("produce", options, settings)
    with running(options.peers, PeerOptions(options.directory, loop=options.loop)) as peers:
        report.peers = {peer.name: peer.described for peer in peers}
        for workload in WORKLOADS:
            # One unmeasured turn each, to warm up compilers and caches.
            for index, peer in round_robin(peers, options.rounds + 1):
                figures = _measure(peer, workload, f"produce-{index}", options)
                if index > 0:
                    report.case(workload.title).add(peer.name, figures)
                    options.say(
                        f"{workload.title}: {peer.name} {figures['mb_per_s']:.0f} MB/s, "
                        f"{figures['server_cpu_s_per_gb']:.2f} CPU-s/GB"
                    )
    _compare(report)
    return report


def _compare(report: BenchmarkReport) -> None:
    for case in report.cases:
        client_limited = case.title.startswith("confluent")
        kafka_goal = None if client_limited else Goal("at least", 1.3)
        report.compare(case, "mb_per_s", {"floor": Goal("at least", 0.7), "kafka": kafka_goal})
        report.compare(case, "server_cpu_s_per_gb", {"kafka": Goal("at most", 0.7), "floor": None})
    note_other_load(report, report.cases)
    report.notes.append(
        "with the confluent-kafka client, client and server share the machine's cores and the "
        "client is the limit; the raw replay shows the server alone"
    )


def _measure(
    peer: Peer, workload: ProduceWorkload, topic: str, options: BenchmarkOptions
) -> dict[str, float]:
    name = f"{topic}-{workload.kind}-{workload.record_bytes}-{workload.batch_bytes}"
    if not peer.has_topics:
        name = "bench"
    else:
        configs = TOPIC_CONFIGS.get(peer.name)
        requests.create_topic(peer.host, peer.port, name, PARTITIONS, configs)
    warm_page_cache(options.directory, options.pick(1100, 250) * 1_000_000)
    with Metered(peer) as cost:
        load = run_load(workload.kind, _spec(peer, workload, name, options))
    if peer.has_topics:
        requests.delete_topic(peer.host, peer.port, name)
    peer.forget_data()
    figures = throughput_figures(load, cost)
    if workload.kind == "replay":
        figures["requests_per_s"] = load["requests"] / load["elapsed_s"]
    return figures


def _spec(
    peer: Peer, workload: ProduceWorkload, topic: str, options: BenchmarkOptions
) -> dict[str, Any]:
    spec: dict[str, Any] = {
        "host": peer.host,
        "port": peer.port,
        "topic": topic,
        "partitions": PARTITIONS,
        "record_bytes": workload.record_bytes,
    }
    if workload.kind == "replay":
        volume_bytes = options.pick(1000, 200) * 1_000_000
        spec |= {
            "batch_bytes": workload.batch_bytes,
            "connections": CONNECTIONS,
            "in_flight": IN_FLIGHT,
            "acks": 1,
            "count": volume_bytes // workload.batch_bytes // CONNECTIONS,
        }
    else:
        spec["count"] = options.pick(300, 60) * 1_000_000 // workload.record_bytes
    return spec
