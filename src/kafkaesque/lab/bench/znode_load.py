"""Reads and writes of znodes through kazoo, from the load process."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

from kazoo.client import KazooClient

from kafkaesque.lab.bench.figures import latency_figures

Pending = deque[tuple[int, Any]]
START_TIMEOUT_S = 60.0
ANSWER_TIMEOUT_S = 60.0


def operate(spec: Mapping[str, Any]) -> dict[str, float]:
    """Runs `count` operations in total, by clients that are spread over the servers.

    Each client has its own node and keeps `in_flight` operations in flight.
    """
    servers, size_bytes = spec["servers"], spec["node_bytes"]
    clients = [_connected(servers[n % len(servers)]) for n in range(spec["clients"])]
    try:
        paths = [_own_node(client, bytes(size_bytes)) for client in clients]
        share = spec["count"] // len(clients)
        works = [
            _work(client, path, spec["kind"], bytes(size_bytes))
            for client, path in zip(clients, paths, strict=True)
        ]
        for work in works:
            _pump(work, spec["in_flight"], max(1, share // 10), [])
        taken_ns: list[int] = []
        started = time.perf_counter()
        threads = [
            threading.Thread(target=_pump, args=(work, spec["in_flight"], share, taken_ns))
            for work in works
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        elapsed_s = time.perf_counter() - started
        for client, path in zip(clients, paths, strict=True):
            client.delete(path)
    finally:
        for client in clients:
            client.stop()
            client.close()
    return {"operations": len(taken_ns), "elapsed_s": elapsed_s, **latency_figures(taken_ns)}


def _connected(server: str) -> KazooClient:
    client = KazooClient(hosts=server)
    client.start(timeout=START_TIMEOUT_S)
    return client


def _own_node(client: KazooClient, data: bytes) -> str:
    client.ensure_path("/bench")
    return str(client.create("/bench/node-", data, sequence=True))


def _work(client: KazooClient, path: str, kind: str, data: bytes) -> Callable[[], Any]:
    if kind == "read":
        return lambda: client.get_async(path)
    return lambda: client.set_async(path, data)


def _pump(work: Callable[[], Any], in_flight: int, count: int, taken_ns: list[int]) -> None:
    """Keep `in_flight` operations in flight until `count` are answered; kazoo answers them in order."""
    pending: Pending = deque()
    for _ in range(count):
        if len(pending) == in_flight:
            _take(pending, taken_ns)
        pending.append((time.perf_counter_ns(), work()))
    while pending:
        _take(pending, taken_ns)


def _take(pending: Pending, taken_ns: list[int]) -> None:
    began_ns, answer = pending.popleft()
    answer.get(timeout=ANSWER_TIMEOUT_S)
    taken_ns.append(time.perf_counter_ns() - began_ns)
