"""Many partitions on one broker: creation, start-up after a stop and after a kill, idle cost."""

from __future__ import annotations

import socket
import time

from kafkaesque.lab.bench import requests
from kafkaesque.lab.bench.peers import Peer, PeerOptions, ScriptPeer, running
from kafkaesque.lab.bench.raw_load import LoadFailed
from kafkaesque.lab.bench.report import BenchmarkReport
from kafkaesque.lab.bench.rounds import BenchmarkOptions, new_report
from kafkaesque.testing.waiting import poll_until

TOPICS = 5
LEADER_TIMEOUT_S = 60.0
RETRY_S = 0.01


def run(options: BenchmarkOptions) -> BenchmarkReport:
    partitions = options.pick(5_000, 500)
    settings = {"rounds": 1, "partitions": partitions, "topics": TOPICS}
    report = new_report("partitions", options, settings)
    case = report.case(f"{partitions:,} partitions in {TOPICS} topics, one record in each")
    names = tuple(name for name in options.peers if name != "floor")
    with running(names, PeerOptions(options.directory, loop=options.loop)) as peers:
        report.peers = {peer.name: peer.described for peer in peers}
        for peer in peers:
            figures = _fill(peer, partitions)
            figures |= _at_rest(peer, "")
            if isinstance(peer, ScriptPeer):
                figures |= _restarts(peer)
            case.add(peer.name, figures)
            options.say(f"{peer.name}: {figures}")
    return report


def _fill(peer: Peer, partitions: int) -> dict[str, float]:
    started = time.perf_counter()
    for index in range(TOPICS):
        requests.create_topic(peer.host, peer.port, f"many-{index}", partitions // TOPICS)
    created_s = time.perf_counter() - started
    batch, _ = requests.make_batch(100, 0)
    started = time.perf_counter()
    with requests.connect(peer.host, peer.port) as sock:
        for index in range(TOPICS):
            for partition in range(partitions // TOPICS):
                frame = requests.produce_frame(f"many-{index}", partition, batch, acks=1)
                _send_until_accepted(sock, frame)
    return {"create_s": created_s, "first_record_in_each_s": time.perf_counter() - started}


def _send_until_accepted(sock: socket.socket, frame: bytes) -> None:
    """Retries while a new partition has no leader yet (Apache Kafka reports this for a moment)."""
    error = 0

    def is_accepted() -> bool:
        nonlocal error
        sock.sendall(frame)
        error = requests.produce_error(requests.read_frame(sock))
        return error == 0

    poll_until(
        is_accepted,
        lambda: f"a Produce request is accepted (the last one got error {error})",
        LEADER_TIMEOUT_S,
        poll_s=RETRY_S,
        error=LoadFailed,
    )


def _at_rest(peer: Peer, suffix: str) -> dict[str, float]:
    return {f"rss_mb{suffix}": peer.rss_bytes() / 1e6, f"open_files{suffix}": peer.open_files()}


def _restarts(peer: ScriptPeer) -> dict[str, float]:
    """Time from exec to ready, after a clean stop and after kill -9."""
    started = time.perf_counter()
    peer.stop()
    stopped_s = time.perf_counter() - started
    after_stop_s = _timed_start(peer)
    rest = _at_rest(peer, "_after_restart")
    peer.kill()
    return {
        "clean_stop_s": stopped_s,
        "start_after_clean_stop_s": after_stop_s,
        **rest,
        "start_after_kill_s": _timed_start(peer),
    }


def _timed_start(peer: ScriptPeer) -> float:
    started = time.perf_counter()
    peer.start()
    return time.perf_counter() - started
