"""Time from exec to the first acknowledged record, and idle memory."""

from __future__ import annotations

import os
import shutil
import socket
import time
from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path

from kafkaesque.lab.bench import requests
from kafkaesque.lab.bench.figures import Goal
from kafkaesque.lab.bench.peers import READY_TIMEOUT_S, Peer, PeerOptions, make_peer, peer_label
from kafkaesque.lab.bench.raw_load import LoadFailed
from kafkaesque.lab.bench.report import BenchmarkReport
from kafkaesque.lab.bench.rounds import BenchmarkOptions, new_report

CASE = "empty data directory, one topic created, one record of 100 B, acks=1"
TOPIC = "start"
RETRY_S = 0.002
IDLE_S = 3.0
MB = 1e6


def run(options: BenchmarkOptions) -> BenchmarkReport:
    report = new_report("start", options, {"idle_s": options.pick(3, 1)})
    # The first round is not counted: it compiles the bytecode that an installation already has.
    for round_index in range(options.rounds + 1):
        for name in options.peers:
            directory = options.directory / f"{peer_label(name)}-{round_index}"
            peer = make_peer(name, PeerOptions(directory, loop=options.loop, port=_free_port()))
            directory.mkdir(parents=True)
            figures = _one_start(peer, options.pick(3, 1))
            shutil.rmtree(directory, ignore_errors=True)
            report.peers[peer.name] = peer.described
            if round_index == 0:
                continue
            report.case(CASE).add(peer.name, figures)
            options.say(
                f"{peer.name}: {figures['exec_to_first_ack_s']:.2f} s, "
                f"{figures['idle_rss_mb']:.0f} MB"
            )
    case = report.case(CASE)
    report.hold(case, "exec_to_first_ack_s", Goal("at most", 0.5))
    report.hold(case, "idle_rss_mb", Goal("at most", 80))
    goals: dict[str, Goal | None] = {"kafka": None, "floor": None}
    report.compare(case, "exec_to_first_ack_s", goals)
    report.compare(case, "idle_rss_mb", goals)
    return report


def _one_start(peer: Peer, idle_s: float) -> dict[str, float]:
    """Try to connect while the server starts; the server's own ready message is not timed."""
    with ThreadPoolExecutor(1) as threads:
        starting = threads.submit(peer.start)
        try:
            first_ack = _first_ack(peer, starting)
            starting.result()
            exec_to_first_ack_s = first_ack - _exec_time(peer.pids[0])
            before_s = peer.cpu_seconds()
            time.sleep(idle_s)
            return {
                "exec_to_first_ack_s": exec_to_first_ack_s,
                "start_cpu_s": before_s,
                "idle_rss_mb": peer.rss_bytes() / MB,
                "idle_cpu_share": (peer.cpu_seconds() - before_s) / idle_s,
            }
        finally:
            wait([starting])
            peer.stop()


def _first_ack(peer: Peer, starting: Future[None]) -> float:
    """When the first record was acknowledged, in seconds since boot."""
    batch, _ = requests.make_batch(100, 0)
    frame = requests.produce_frame(TOPIC, 0, batch, acks=1)
    deadline = time.monotonic() + READY_TIMEOUT_S
    has_topic = not peer.has_topics
    while time.monotonic() < deadline:
        if starting.done():
            starting.result()
        try:
            if not has_topic:
                requests.create_topic(peer.host, peer.port, TOPIC, 1)
                has_topic = True
            with requests.connect(peer.host, peer.port) as sock:
                sock.sendall(frame)
                if requests.produce_error(requests.read_frame(sock)) == 0:
                    return time.clock_gettime(time.CLOCK_BOOTTIME)
        except (OSError, LoadFailed):
            pass
        time.sleep(RETRY_S)
    raise LoadFailed(f"{peer.name} acknowledged nothing in {READY_TIMEOUT_S:.0f} s")


def _exec_time(pid: int) -> float:
    """Start time of the process, in seconds since boot (field 22 of /proc/PID/stat)."""
    text = Path(f"/proc/{pid}/stat").read_text()
    ticks = int(text[text.rindex(")") + 2 :].split()[19])
    return ticks / os.sysconf("SC_CLK_TCK")


def _free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])
