"""For benchmarks of recovery: fills many partitions, and measures when they acknowledge again."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from kafkaesque.lab.bench import requests
from kafkaesque.lab.bench.clusters import BROKERS, OurCluster
from kafkaesque.lab.bench.figures import percentile
from kafkaesque.lab.bench.load_process import run_load
from kafkaesque.lab.bench.raw_load import LoadFailed
from kafkaesque.lab.bench.routing import partitions_of
from kafkaesque.lab.harness.metrics import Scrape
from kafkaesque.model.address import parse_address
from kafkaesque.testing.waiting import poll_until

POLL_S = 0.05
"""Metadata of a thousand partitions costs a broker some milliseconds, so the interval is not shorter."""
PER_REQUEST = 64
PRODUCE_TIMEOUT_MS = 2_000
"""A leader that cannot commit answers after this time, so that it does not delay the others."""
RECORD_BYTES = 1000
BATCH_BYTES = 65_536
PARTITIONS_PER_REQUEST = 8
IN_FLIGHT = 4
FILL_TIMEOUT_S = 500.0
STORED_POLL_S = 0.1


@dataclass(slots=True)
class Acknowledged:
    """When partitions were led and acknowledged again, in seconds since `started` (time.perf_counter)."""

    started: float
    led_s: dict[int, float] = field(default_factory=dict)
    """Partitions with a leader that answers."""
    acknowledged_s: dict[int, float] = field(default_factory=dict)

    def figures(self) -> dict[str, float]:
        times = sorted(self.acknowledged_s.values())
        return {
            "all_led_s": max(self.led_s.values()),
            "first_ack_s": times[0],
            "ack_p50_s": percentile(times, 0.5),
            "all_ack_s": times[-1],
        }


def wait_until_acknowledged(
    addresses: Sequence[str],
    topic: str,
    partitions: Iterable[int],
    *,
    started: float,
    timeout_s: float,
) -> Acknowledged:
    """Produce one record with acks=all to the leader of each partition, until all have acknowledged."""
    seen = Acknowledged(started)
    wanted = set(partitions)
    batch, _ = requests.make_batch(100, 0)
    while wanted - seen.acknowledged_s.keys():
        if time.perf_counter() - started > timeout_s:
            missing = len(wanted - seen.acknowledged_s.keys())
            raise LoadFailed(f"{missing} partitions did not acknowledge within {timeout_s:.0f} s")
        led = _led_by(addresses, topic, wanted - seen.acknowledged_s.keys())
        now_s = time.perf_counter() - started
        for some in led.values():
            seen.led_s |= {one: now_s for one in some if one not in seen.led_s}
        for address, some in led.items():
            with contextlib.suppress(OSError, LoadFailed):
                _produce(address, topic, some, batch, seen)
        time.sleep(POLL_S)
    return seen


def _led_by(addresses: Sequence[str], topic: str, partitions: set[int]) -> dict[str, list[int]]:
    """Partitions by leader, according to the first broker that answers."""
    for address in addresses:
        with contextlib.suppress(OSError, LoadFailed, IndexError):
            led: dict[str, list[int]] = {}
            for index, row in enumerate(partitions_of(address, topic)):
                if index in partitions and row.leader in addresses:
                    led.setdefault(row.leader, []).append(index)
            if led:
                return led
    return {}


def _produce(
    address: str, topic: str, partitions: list[int], batch: bytes, seen: Acknowledged
) -> None:
    with requests.connect(*parse_address(address)) as sock:
        for start in range(0, len(partitions), PER_REQUEST):
            some = partitions[start : start + PER_REQUEST]
            _produce_some(sock, topic, some, batch, seen)


def _produce_some(
    sock: socket.socket, topic: str, partitions: list[int], batch: bytes, seen: Acknowledged
) -> None:
    frame = requests.produce_many_frame(
        topic, partitions, batch, acks=-1, timeout_ms=PRODUCE_TIMEOUT_MS
    )
    sock.sendall(frame)
    errors = requests.produce_errors(requests.read_frame(sock))
    now_s = time.perf_counter() - seen.started
    seen.acknowledged_s |= {one: now_s for one, error in errors.items() if error == 0}


def fill(cluster: OurCluster, topic: str, size_bytes: int) -> float:
    """Produce `size_bytes` in all, evenly, with acks=all; returns the seconds it took.

    Then waits until every broker has everything: an acknowledgement only means a majority.
    """
    started = time.perf_counter()
    while (missing := size_bytes - stored_bytes(cluster.scrape(0))) > 0:
        if time.perf_counter() - started > FILL_TIMEOUT_S:
            raise LoadFailed(f"{missing:.0f} bytes of {size_bytes} could not be produced")
        # Leadership may move on a busy machine; refused records are produced again.
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
    poll_until(
        lambda: stored_bytes(cluster.scrape(number)) >= size_bytes,
        lambda: (
            f"broker {number} has {stored_bytes(cluster.scrape(number)):.0f} of {size_bytes:.0f} bytes"
        ),
        FILL_TIMEOUT_S,
        poll_s=STORED_POLL_S,
        error=LoadFailed,
    )


def stored_bytes(scrape: Scrape) -> float:
    """The size of all logs of one broker."""
    return scrape.sum("kafkaesque_log_size_bytes")
