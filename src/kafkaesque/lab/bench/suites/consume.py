"""Consume throughput and cost from page cache: raw fetches, and a real client."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

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
PARTITION_BYTES_MAX = 1 << 20
"""`max.partition.fetch.bytes` of every client."""


class Stored(NamedTuple):
    """The content of each partition: equal batches, so that offsets follow from sizes."""

    batch_bytes: int
    batch_records: int
    batch_count: int

    @property
    def records(self) -> int:
        return self.batch_records * self.batch_count


def run(options: BenchmarkOptions) -> BenchmarkReport:
    settings = {
        "partitions": PARTITIONS,
        "record_bytes": RECORD_BYTES,
        "partition_bytes_max": PARTITION_BYTES_MAX,
        "stored_mb_per_partition": options.pick(200, 50),
        "raw_mb_per_turn": options.pick(2000, 400),
    }
    report = new_report("consume", options, settings)
    for label, batch_bytes in (("16 kB (Java)", 16_384), ("1 MB (librdkafka)", 1_000_000)):
        _run_stored(options, report, label, batch_bytes)
    for case in report.cases:
        client_limited = case.title.startswith("confluent")
        kafka_goal = None if client_limited else Goal("at least", 1.3)
        report.compare(case, "mb_per_s", {"floor": Goal("at least", 0.7), "kafka": kafka_goal})
        report.compare(case, "server_cpu_s_per_gb", {"kafka": Goal("at most", 0.7), "floor": None})
    note_other_load(report, report.cases)
    return report


def _run_stored(
    options: BenchmarkOptions, report: BenchmarkReport, label: str, batch_bytes: int
) -> None:
    batch, batch_records = requests.make_batch(RECORD_BYTES, batch_bytes)
    count = options.pick(200, 50) * 1_000_000 // len(batch)
    stored = Stored(len(batch), batch_records, count)
    prepared = _prepare_floor_file(options.directory, batch, stored)
    peer_options = PeerOptions(
        options.directory / "peers",
        loop=options.loop,
        floor_arguments=(
            *("--fetch-file", str(prepared), "--batch-bytes", str(stored.batch_bytes)),
            *("--batch-records", str(stored.batch_records)),
        ),
    )
    with running(options.peers, peer_options) as peers:
        report.peers = {peer.name: peer.described for peer in peers}
        for peer in peers:
            _fill(peer, stored, batch_bytes)
        for kind, title in (("fetch", "raw fetch"), ("client_consume", "confluent-kafka client")):
            for index, peer in round_robin(peers, options.rounds + 1):
                figures = _measure(peer, kind, stored, options)
                if index > 0:
                    report.case(f"{title}, batches of {label}").add(peer.name, figures)
                    options.say(
                        f"{title}, batches of {label}: {peer.name} "
                        f"{figures['mb_per_s']:.0f} MB/s, "
                        f"{figures['server_cpu_s_per_gb']:.2f} CPU-s/GB"
                    )


def _prepare_floor_file(directory: Path, batch: bytes, stored: Stored) -> Path:
    path = directory / "batches"
    with path.open("wb") as out:
        for index in range(stored.batch_count):
            # The checksum does not cover the base offset.
            out.write((index * stored.batch_records).to_bytes(8) + batch[8:])
    return path


def _topic(peer: Peer) -> str:
    return "stored" if peer.has_topics else "bench"


def _fill(peer: Peer, stored: Stored, batch_bytes: int) -> None:
    if not peer.has_topics:
        return
    requests.create_topic(peer.host, peer.port, _topic(peer), PARTITIONS)
    run_load(
        "replay",
        {
            "host": peer.host,
            "port": peer.port,
            "topic": _topic(peer),
            "partitions": PARTITIONS,
            "connections": PARTITIONS,
            "record_bytes": RECORD_BYTES,
            "batch_bytes": batch_bytes,
            "count": stored.batch_count,
            "in_flight": 5,
            "acks": 1,
        },
    )


def _measure(peer: Peer, kind: str, stored: Stored, options: BenchmarkOptions) -> dict[str, float]:
    spec = {
        "host": peer.host,
        "port": peer.port,
        "topic": _topic(peer),
        "answered_topic": _topic(peer),
        "partitions": PARTITIONS,
        "connections": PARTITIONS,
        "record_bytes": RECORD_BYTES,
        "partition_bytes_max": PARTITION_BYTES_MAX,
        "batch_bytes": stored.batch_bytes,
        "batch_records": stored.batch_records,
        "end_offset": stored.records,
        "size_bytes": options.pick(2000, 400) * 1_000_000,
        "count": stored.records * PARTITIONS,
    }
    with Metered(peer) as cost:
        load = run_load(kind, spec)
    return throughput_figures(load, cost)
