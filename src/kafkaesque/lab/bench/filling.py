"""Much data in many partitions, quickly: for what comes after a crash."""

from __future__ import annotations

import time
from typing import Any

from kafkaesque.lab.bench.clusters import BROKERS, OurCluster
from kafkaesque.lab.bench.lanes import LoadFailed
from kafkaesque.lab.bench.launcher import run_load
from kafkaesque.lab.bench.scraping import Scrape

RECORD_BYTES = 1000
BATCH_BYTES = 65_536
PARTITIONS_PER_REQUEST = 8
IN_FLIGHT = 4
FILL_TIMEOUT_S = 500.0
POLL_S = 0.1


def fill(cluster: OurCluster, topic: str, size_bytes: int) -> float:
    """Produce `size_bytes` in all, evenly, with acks=all; the seconds it took. Then every broker
    has everything: an acknowledgement speaks for a majority only."""
    started = time.perf_counter()
    while (missing := size_bytes - stored_bytes(cluster.scrape(0))) > 0:
        if time.perf_counter() - started > FILL_TIMEOUT_S:
            raise LoadFailed(f"{missing:.0f} bytes of {size_bytes} could not be produced")
        # Leadership may move on a busy machine; what was refused is made up for.
        run_load("paced", _spec(topic, cluster.leaders(topic), int(missing)))
    elapsed_s = time.perf_counter() - started
    for number in range(BROKERS):
        wait_until_stored(cluster, number, size_bytes)
    return elapsed_s


def _spec(topic: str, addresses: list[str], size_bytes: int) -> dict[str, Any]:
    return {
        "topic": topic,
        "addresses": addresses,
        "record_bytes": RECORD_BYTES,
        "batch_bytes": BATCH_BYTES,
        "partitions_per_request": PARTITIONS_PER_REQUEST,
        "size_bytes": size_bytes,
        "duration_s": FILL_TIMEOUT_S,
        "in_flight": IN_FLIGHT,
        "acks": -1,
        "may_fail": True,
    }


def wait_until_stored(cluster: OurCluster, number: int, size_bytes: float) -> None:
    deadline = time.monotonic() + FILL_TIMEOUT_S
    while (stored := stored_bytes(cluster.scrape(number))) < size_bytes:
        if time.monotonic() > deadline:
            raise LoadFailed(f"broker {number} has {stored:.0f} of {size_bytes:.0f} bytes")
        time.sleep(POLL_S)


def stored_bytes(scrape: Scrape) -> float:
    """Of all logs of one broker."""
    return scrape.sum("kafkaesque_log_size_bytes")
