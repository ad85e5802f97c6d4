"""Cleaning of a compacted topic: speed, reduction in size, and produce latency meanwhile."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path

from kafkaesque.lab.bench import requests
from kafkaesque.lab.bench.figures import Goal
from kafkaesque.lab.bench.load_process import run_load
from kafkaesque.lab.bench.peers import Peer, PeerOptions, running
from kafkaesque.lab.bench.raw_load import LoadFailed
from kafkaesque.lab.bench.report import BenchmarkReport
from kafkaesque.lab.bench.rounds import BenchmarkOptions, new_report
from kafkaesque.lab.harness.metrics import Scrape, scrape
from kafkaesque.testing.table_rows import TableRows
from kafkaesque.testing.waiting import poll_until
from kafkaesque.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

TOPIC, OTHER = "rows", "beside"
UPDATES = 10
ROW_BYTES = 100
ALTER_VERSION = 1
TOPIC_RESOURCE = 2
HELD_BACK_MS = 10**12
TIMEOUT_S = 1800.0
POLL_S = 0.1
MB = 1e6


def run(options: BenchmarkOptions) -> BenchmarkReport:
    rows = options.pick(1_000_000, 20_000)
    settings = {"rounds": 1, "rows": rows, "updates": UPDATES, "row_bytes": ROW_BYTES}
    report = new_report("compaction", options, settings)
    cleaner = {"log.cleaner.backoff.ms": "100"}
    with running(["ours"], PeerOptions(options.directory, settings=cleaner)) as (peer,):
        report.peers[peer.name] = peer.described
        table = _fill(peer, rows, options)
        title = f"{rows:,} keys updated {UPDATES} times"
        figures = _clean(peer, table, options)
        report.case(title).add(peer.name, figures)
        options.say(f"{title}: {figures}")
    case = report.case(title)
    report.hold(case, "rows_wrong", Goal("at most", 0))
    report.notes.append(
        "cleaned_mb_per_s: bytes of the log looked at, per second from the first cleaning to the "
        "last; p99: one record of 100 B in flight to another topic, acks=1"
    )
    return report


def _fill(peer: Peer, rows: int, options: BenchmarkOptions) -> TableRows:
    """Writes all rows while the cleaner is disabled."""
    configs = {
        "cleanup.policy": "compact",
        "segment.bytes": str(64 << 20),
        "min.cleanable.dirty.ratio": "0.01",
        "min.compaction.lag.ms": str(HELD_BACK_MS),
    }
    requests.create_topic(peer.host, peer.port, TOPIC, 1, configs)
    requests.create_topic(peer.host, peer.port, OTHER, 1)
    table = TableRows(f"{peer.host}:{peer.port}", TOPIC, rows, ROW_BYTES)
    for version in range(1, UPDATES + 1):
        for number in range(table.batches):
            table.write(number, version)
        options.say(f"version {version} of {rows:,} rows written")
    return table


def _clean(peer: Peer, table: TableRows, options: BenchmarkOptions) -> dict[str, float]:
    idle = _latency(peer, options)
    before = _scrape(peer)
    size_bytes = before.sum("kafkaesque_log_size_bytes", f'topic="{TOPIC}"')
    _alter(peer, {"min.compaction.lag.ms": "0", "segment.ms": "1"})
    table.write(0, UPDATES)
    meanwhile: list[dict[str, float]] = []
    ended = threading.Event()

    def measure() -> None:
        while not ended.is_set():
            meanwhile.append(_latency(peer, options))

    thread = threading.Thread(target=measure)
    started = time.monotonic()
    thread.start()
    read_bytes, elapsed_s = _wait_until_clean(peer, started)
    ended.set()
    thread.join()
    after = _scrape(peer)
    left_bytes = after.sum("kafkaesque_log_size_bytes", f'topic="{TOPIC}"')
    return {
        "size_before_mb": size_bytes / MB,
        "size_after_mb": left_bytes / MB,
        "cleaned_mb_per_s": read_bytes / MB / elapsed_s,
        "cleaning_s": elapsed_s,
        "idle_p50_ms": idle["p50_ms"],
        "idle_p99_ms": idle["p99_ms"],
        "meanwhile_p50_ms": sorted(one["p50_ms"] for one in meanwhile)[len(meanwhile) // 2],
        "meanwhile_p99_ms": sorted(one["p99_ms"] for one in meanwhile)[len(meanwhile) // 2],
        "rows_wrong": float(len(table.wrong())),
    }


def _latency(peer: Peer, options: BenchmarkOptions) -> dict[str, float]:
    spec = {"host": peer.host, "port": peer.port, "topic": OTHER, "record_bytes": 100}
    count = options.pick(3_000, 500)
    return run_load("latency", spec | {"acks": 1, "count": count, "warm_up": 100})


def _wait_until_clean(peer: Peer, started: float) -> tuple[float, float]:
    """Bytes read by the cleaner, and seconds until the end of the last cleaning that read any."""
    read_bytes, ended = -1.0, started

    def look() -> bool:
        nonlocal read_bytes, ended
        page = _scrape(peer)
        now_bytes = page.sum("kafkaesque_log_compacted_bytes_total")
        if now_bytes != read_bytes:
            read_bytes, ended = now_bytes, time.monotonic()
        is_clean = page.sum("kafkaesque_log_dirty_ratio", f'topic="{TOPIC}"') == 0
        return is_clean and page.sum("kafkaesque_log_cleanings_total") > 0

    poll_until(look, "the topic is clean", TIMEOUT_S, poll_s=POLL_S)
    return read_bytes, ended - started


def _scrape(peer: Peer) -> Scrape:
    facts = next(Path(peer.options.directory).rglob("broker.json")).read_text()
    return scrape(json.loads(facts)["http"])


def _alter(peer: Peer, values: dict[str, str]) -> None:
    configs = [AlterableConfig(name=k, config_operation=0, value=v) for k, v in values.items()]
    resource = AlterConfigsResource(
        resource_type=TOPIC_RESOURCE, resource_name=TOPIC, configs=configs
    )
    request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)
    answer = requests.call(
        peer.host, peer.port, request, ALTER_VERSION, IncrementalAlterConfigsResponse
    )
    code = answer.responses[0].error_code
    if code:
        raise LoadFailed(f"altering {TOPIC}: error {code}")
