"""Load on many partitions of a cluster: one connection per broker, many partitions per request.

The Java client produces like this: one request has the records for all partitions of one leader. `paced`
sends at a fixed rate, whether or not answers arrive, and measures from when a record was due, so that a
stall is not hidden (coordinated omission); without a rate it sends as fast as answers arrive.
"""

from __future__ import annotations

import select
import signal
import socket
import time
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from time import perf_counter_ns
from typing import Any, NamedTuple

from kafkaesque.lab.bench import requests
from kafkaesque.lab.bench.figures import latency_figures
from kafkaesque.lab.bench.raw_load import RECEIVE_BYTES, LoadFailed
from kafkaesque.model.address import parse_address

NS_PER_S = 1_000_000_000
DRAIN_S = 60.0
"""How long answers may take after the last request."""


class ProduceFrame(NamedTuple):
    data: bytes
    records: int
    size_bytes: int


class PacedConnection:
    """Sends `frames` in turn, each when it is due, with at most `in_flight_max` unanswered."""

    def __init__(
        self,
        sock: socket.socket,
        frames: Sequence[ProduceFrame],
        interval_ns: int,
        in_flight_max: int,
    ) -> None:
        self.sock = sock
        self.answers: list[bytes] = []
        self.latencies_ns: list[int] = []
        self.sent_count = 0
        self._frames = frames
        self._interval_ns = interval_ns
        self._in_flight_max = in_flight_max
        self._due_ns: deque[int] = deque()
        self._unsent = memoryview(b"")
        self._pending = bytearray()

    @property
    def in_flight(self) -> int:
        return len(self._due_ns)

    @property
    def is_full(self) -> bool:
        """Whether the socket accepts no more bytes for now."""
        return len(self._unsent) > 0

    def frame_at(self, number: int) -> ProduceFrame:
        return self._frames[number % len(self._frames)]

    def push(self, started_ns: int, now_ns: int, count_max: int) -> int:
        """Send the frames that are due; returns when the next one is due."""
        while True:
            if self._unsent and not self._flush():
                return now_ns + NS_PER_S
            due_ns = started_ns + self.sent_count * self._interval_ns
            if self.sent_count >= count_max or self.in_flight >= self._in_flight_max:
                return now_ns + NS_PER_S
            if due_ns > now_ns:
                return due_ns
            self._due_ns.append(due_ns if self._interval_ns else now_ns)
            self._unsent = memoryview(self.frame_at(self.sent_count).data)
            self.sent_count += 1

    def _flush(self) -> bool:
        try:
            sent = self.sock.send(self._unsent)
        except BlockingIOError:
            return False
        self._unsent = self._unsent[sent:]
        return not self._unsent

    def pull(self) -> None:
        data = self.sock.recv(RECEIVE_BYTES)
        if not data:
            raise LoadFailed("the server closed the connection")
        now_ns = perf_counter_ns()
        self._pending += data
        while len(self._pending) >= 4:
            stop = 4 + int.from_bytes(self._pending[:4])
            if stop > len(self._pending):
                return
            self.answers.append(bytes(self._pending[4:stop]))
            self.latencies_ns.append(now_ns - self._due_ns.popleft())
            del self._pending[:stop]


def drive_paced(
    connections: Sequence[PacedConnection], counts: Sequence[int], last_s: float
) -> float:
    """Run until each connection has sent and had answered its count of requests, or for `last_s`
    seconds, or until SIGTERM; returns the seconds it took."""
    poller = select.epoll()
    by_fd = {connection.sock.fileno(): connection for connection in connections}
    for connection in connections:
        connection.sock.setblocking(False)
        poller.register(connection.sock.fileno(), select.EPOLLIN)
    started_ns = perf_counter_ns()
    end_ns = started_ns + int(last_s * NS_PER_S)
    ended: list[int] = []
    signal.signal(signal.SIGTERM, lambda *_: ended.append(perf_counter_ns()))
    while True:
        now_ns = perf_counter_ns()
        end_ns = min([end_ns, *ended])
        limits = (
            counts if now_ns < end_ns else [connection.sent_count for connection in connections]
        )
        due_ns = min(
            connection.push(started_ns, now_ns, limit)
            for connection, limit in zip(connections, limits, strict=True)
        )
        if all(
            connection.sent_count >= limit and not connection.in_flight
            for connection, limit in zip(connections, limits, strict=True)
        ):
            break
        if now_ns > end_ns + DRAIN_S * NS_PER_S:
            raise LoadFailed(
                f"{sum(connection.in_flight for connection in connections)} requests never answered"
            )
        for fd, connection in by_fd.items():
            poller.modify(fd, select.EPOLLIN | (select.EPOLLOUT if connection.is_full else 0))
        for fd, event in poller.poll(max(0.0, (due_ns - now_ns) / NS_PER_S)):
            if event & ~select.EPOLLOUT:
                by_fd[fd].pull()
    poller.close()
    return (perf_counter_ns() - started_ns) / NS_PER_S


def make_connections(spec: Mapping[str, Any]) -> list[PacedConnection]:
    """One connection for each broker that leads partitions in `addresses` (by partition)."""
    led: dict[str, list[int]] = {}
    for partition, address in enumerate(spec["addresses"]):
        led.setdefault(address, []).append(partition)
    batch, batch_records = requests.make_batch(spec["record_bytes"], spec["batch_bytes"])
    connections = []
    for address, partitions in led.items():
        per_request = min(spec["partitions_per_request"], len(partitions))
        frames = []
        for start in range(0, len(partitions), per_request):
            some = partitions[start : start + per_request]
            data = requests.produce_many_frame(spec["topic"], some, batch, acks=spec["acks"])
            frames.append(ProduceFrame(data, len(some) * batch_records, len(some) * len(batch)))
        interval_ns = 0
        if spec.get("records_per_s"):
            share = len(partitions) / len(spec["addresses"])
            mean_records = sum(frame.records for frame in frames) / len(frames)
            interval_ns = int(mean_records / (spec["records_per_s"] * share) * NS_PER_S)
        sock = requests.connect(*parse_address(address))
        connections.append(PacedConnection(sock, frames, interval_ns, spec["in_flight"]))
    return connections


def paced(spec: Mapping[str, Any]) -> dict[str, float]:
    """Sends `records_per_s` for `duration_s` seconds, or `size_bytes` in total at full speed."""
    connections = make_connections(spec)
    counts = [
        _requests_for(connection, spec["size_bytes"] // len(connections))
        if "size_bytes" in spec
        else 1 << 60
        for connection in connections
    ]
    started_cpu_s = time.process_time()
    elapsed_s = drive_paced(connections, counts, spec["duration_s"])
    cpu_s = time.process_time() - started_cpu_s
    refused = Counter(
        error
        for connection in connections
        for answer in connection.answers
        for error in requests.produce_errors(answer).values()
        if error
    )
    if refused and not spec.get("may_fail"):
        raise LoadFailed(f"batches were refused, by error code: {dict(refused)}")
    frames = [
        connection.frame_at(number)
        for connection in connections
        for number in range(connection.sent_count)
    ]
    return {
        "records": sum(frame.records for frame in frames),
        "size_bytes": sum(frame.size_bytes for frame in frames),
        "requests": len(frames),
        "errors": refused.total(),
        "elapsed_s": elapsed_s,
        "cpu_s": cpu_s,
        **latency_figures([one for connection in connections for one in connection.latencies_ns]),
        "max_ms": max(one for connection in connections for one in connection.latencies_ns) / 1e6,
    }


def _requests_for(connection: PacedConnection, size_bytes: int) -> int:
    """The number of requests that send at least `size_bytes`."""
    count = 0
    while size_bytes > 0:
        size_bytes -= connection.frame_at(count).size_bytes
        count += 1
    return count
