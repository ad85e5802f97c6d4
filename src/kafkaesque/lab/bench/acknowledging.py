"""Until when partitions acknowledge again: asks for their leaders and produces to each, until all did.

For what comes after a crash. Addresses that do not answer are asked again.
"""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from kafkaesque.lab.bench import requests
from kafkaesque.lab.bench.figures import percentile
from kafkaesque.lab.bench.lanes import LoadFailed
from kafkaesque.lab.bench.routing import partitions_of, split

POLL_S = 0.05
"""Metadata of a thousand partitions takes a broker some milliseconds, which are missing elsewhere."""
PER_REQUEST = 64
PRODUCE_TIMEOUT_MS = 2_000
"""Whoever cannot commit says so after this time, and does not keep the others waiting."""


@dataclass(slots=True)
class Acknowledged:
    """Seconds since `started` (time.perf_counter) at which things were seen first."""

    started: float
    led_s: dict[int, float] = field(default_factory=dict)
    """Partitions for which a broker that answers was named as the leader."""
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
    """Produce one record with acks=all to each of `partitions` at whoever of `addresses` leads it."""
    seen = Acknowledged(started)
    wanted = set(partitions)
    batch, _ = requests.make_batch(100, 0)
    while wanted - seen.acknowledged_s.keys():
        if time.perf_counter() - started > timeout_s:
            missing = len(wanted - seen.acknowledged_s.keys())
            raise LoadFailed(f"{missing} partitions acknowledge nothing after {timeout_s:.0f} s")
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
    """By leader, as the first broker that answers tells it."""
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
    with requests.connect(*split(address)) as sock:
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
