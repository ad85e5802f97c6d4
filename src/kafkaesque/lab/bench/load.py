"""The load process: `python -m kafkaesque.lab.bench.load KIND JSON`, one line of JSON as its answer.

Load runs in a process of its own so that its CPU can be measured separately, and everything is built
before the clock starts. Kinds that hold something open (`idle`, `members`) report that in a first line and
end when their standard input ends.
"""

from __future__ import annotations

import json
import socket
import sys
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from kafkaesque.lab.bench import requests
from kafkaesque.lab.bench.figures import latency_figures
from kafkaesque.lab.bench.raw_load import (
    FetchConnection,
    LoadFailed,
    ReplayConnection,
    drive,
    round_trips,
)
from kafkaesque.model.address import parse_address

Figures = dict[str, float]


def replay(spec: Mapping[str, Any]) -> Figures:
    """Produce requests of one batch each, over several connections, several in flight on each."""
    batch, records = requests.make_batch(spec["record_bytes"], spec["batch_bytes"])
    connections = []
    for index in range(spec["connections"]):
        partition = index % spec["partitions"]
        frame = requests.produce_frame(spec["topic"], partition, batch, acks=spec["acks"])
        sock = _connect(spec, partition)
        connections.append(ReplayConnection(sock, frame, spec["count"], spec["in_flight"]))
    with CpuTimer() as clock:
        elapsed_s = drive(connections)
    for connection in connections:
        requests.check_produced(connection.answers)
    requests_sent = spec["count"] * len(connections)
    latencies = [one for connection in connections for one in connection.latencies_ns]
    return {
        "records": requests_sent * records,
        "size_bytes": requests_sent * len(batch),
        "requests": requests_sent,
        "elapsed_s": elapsed_s,
        "cpu_s": clock.cpu_s,
        **latency_figures(latencies),
    }


def _connect(spec: Mapping[str, Any], partition: int) -> socket.socket:
    """Connect to the leader of `partition` if the spec has the `addresses` of leaders."""
    if "addresses" in spec:
        return requests.connect(*parse_address(spec["addresses"][partition]))
    return requests.connect(spec["host"], spec["port"])


def fetch(spec: Mapping[str, Any]) -> Figures:
    """Consumers without a client library: one partition and one request in flight each."""
    connections = []
    for index in range(spec["connections"]):
        frame, offset_position = requests.fetch_frame(
            spec["topic"], index, partition_bytes_max=spec["partition_bytes_max"]
        )
        connections.append(
            FetchConnection(
                requests.connect(spec["host"], spec["port"]),
                frame,
                offset_position,
                overhead_bytes=requests.fetch_overhead_bytes(spec["answered_topic"]),
                batch_bytes=spec["batch_bytes"],
                batch_records=spec["batch_records"],
                end_offset=spec["end_offset"],
                bytes_wanted=spec["size_bytes"] // spec["connections"],
            )
        )
    with CpuTimer() as clock:
        elapsed_s = drive(connections)
    for connection in connections:
        requests.check_fetched(spec["answered_topic"], connection.heads)
    return {
        "records": sum(connection.records_received for connection in connections),
        "size_bytes": sum(connection.bytes_received for connection in connections),
        "requests": sum(len(connection.heads) for connection in connections),
        "elapsed_s": elapsed_s,
        "cpu_s": clock.cpu_s,
    }


def latency(spec: Mapping[str, Any]) -> Figures:
    """One record, one request, one connection, one at a time."""
    batch, _ = requests.make_batch(spec["record_bytes"], 0)
    frame = requests.produce_frame(spec["topic"], 0, batch, acks=spec["acks"])
    sock = requests.connect(spec["host"], spec["port"])
    round_trips(sock, frame, spec["warm_up"])
    with CpuTimer() as clock:
        latencies_ns, answers = round_trips(sock, frame, spec["count"])
    requests.check_produced(answers)
    elapsed_s = sum(latencies_ns) / 1e9
    return {"cpu_s": clock.cpu_s, "elapsed_s": elapsed_s, **latency_figures(latencies_ns)}


def client_produce(spec: Mapping[str, Any]) -> Figures:
    from kafkaesque.lab.bench import librdkafka_load

    return _with_client(partial(librdkafka_load.produce, acks=spec.get("acks", 1)), spec)


def client_consume(spec: Mapping[str, Any]) -> Figures:
    from kafkaesque.lab.bench import librdkafka_load

    return _with_client(librdkafka_load.consume, spec)


def client_idempotent(spec: Mapping[str, Any]) -> Figures:
    from kafkaesque.lab.bench import librdkafka_load

    return _with_client(librdkafka_load.produce_idempotent, spec)


def client_transactions(spec: Mapping[str, Any]) -> Figures:
    from kafkaesque.lab.bench import librdkafka_load

    work = librdkafka_load.produce_transactions
    return _with_client(partial(work, per_transaction=spec["per_transaction"]), spec)


def _with_client(run: Callable[..., Figures], spec: Mapping[str, Any]) -> Figures:
    with CpuTimer() as clock:
        figures = run(
            spec.get("bootstrap") or f"{spec['host']}:{spec['port']}",
            spec["topic"],
            partitions=spec["partitions"],
            count=spec["count"],
            size_bytes=spec["record_bytes"],
        )
    return {**figures, "cpu_s": clock.cpu_s}


def paced(spec: Mapping[str, Any]) -> Figures:
    from kafkaesque.lab.bench.paced_load import paced

    return paced(spec)


def znodes(spec: Mapping[str, Any]) -> Figures:
    from kafkaesque.lab.bench.znode_load import operate

    return operate(spec)


def idle(spec: Mapping[str, Any]) -> Figures:
    from kafkaesque.lab.bench.idle_clients import idle_connections

    return idle_connections(spec)


def members(spec: Mapping[str, Any]) -> Figures:
    from kafkaesque.lab.bench.idle_clients import group_members

    return group_members(spec)


class CpuTimer:
    """CPU seconds of this process between enter and exit."""

    cpu_s = 0.0

    def __enter__(self) -> CpuTimer:
        self._started_s = time.process_time()
        return self

    def __exit__(self, *_: object) -> None:
        self.cpu_s = time.process_time() - self._started_s


KINDS: dict[str, Callable[[Mapping[str, Any]], Figures]] = {
    "replay": replay,
    "fetch": fetch,
    "latency": latency,
    "client_produce": client_produce,
    "client_consume": client_consume,
    "client_idempotent": client_idempotent,
    "client_transactions": client_transactions,
    "paced": paced,
    "znodes": znodes,
    "idle": idle,
    "members": members,
}


def main() -> None:
    kind, spec = sys.argv[1], json.loads(sys.argv[2])
    try:
        figures = KINDS[kind](spec)
    except (LoadFailed, OSError) as error:
        print(json.dumps({"error": f"{type(error).__name__}: {error}"}))
        sys.exit(1)
    print(json.dumps({**figures, "process_cpu_s": time.process_time()}))


if __name__ == "__main__":
    main()
