"""Tasks beside Celery, Dramatiq and taskiq on Redis: throughput and enqueue-to-start latency.

Calls are sent by one process while two workers run them; the rate is measured from the first
send to the last start. Latency is measured separately, with calls sent one at a time at a low rate.
"""

from __future__ import annotations

import shutil
from typing import Final

from kafkaesque.lab.bench.figures import Goal
from kafkaesque.lab.bench.report import BenchmarkReport
from kafkaesque.lab.bench.rounds import BenchmarkOptions, new_report
from kafkaesque.lab.bench.tasks_peers import TaskPeer

PEERS: Final = ("ours", "celery", "dramatiq", "taskiq")
CASES: Final = {"noop": "no-op calls", "busy": "calls of 1 ms"}
LATENCY_CALLS: Final = 200
LATENCY_PAUSE_S: Final = 0.02
WAIT_S: Final = 600.0


def run(options: BenchmarkOptions) -> BenchmarkReport:
    calls = options.pick(20_000, 2_000)
    settings: dict[str, object] = {
        "calls": calls,
        "workers": 2,
        "latency_calls": LATENCY_CALLS,
        "latency_pause_ms": LATENCY_PAUSE_S * 1000,
    }
    report = new_report("tasks", options, settings)
    names = [name for name in options.peers if name in PEERS]
    for round_index in range(options.rounds):
        shift = round_index % len(names)
        for name in [*names[shift:], *names[:shift]]:
            _measure(report, options, name, round_index, calls)
    goals: dict[str, Goal | None] = dict.fromkeys(PEERS[1:])
    for title in CASES.values():
        case = report.case(title)
        for figure in ("calls_per_s", "start_ms_p50", "start_ms_p99"):
            report.compare(case, figure, goals)
    return report


def _measure(
    report: BenchmarkReport, options: BenchmarkOptions, name: str, round_index: int, calls: int
) -> None:
    directory = options.directory / f"round-{round_index}"
    peer = TaskPeer(name, directory)
    report.peers[name] = peer.described
    try:
        peer.start()
        for task, title in CASES.items():
            figures = {**_throughput(peer, task, calls), **_latency(peer, task)}
            report.case(title).add(name, figures)
            options.say(
                f"{name}, {title}: {figures['calls_per_s']:.0f} a second, started after "
                f"{figures['start_ms_p50']:.1f} ms (p99 {figures['start_ms_p99']:.1f})"
            )
    finally:
        peer.stop()
        shutil.rmtree(directory / name, ignore_errors=True)


def _throughput(peer: TaskPeer, task: str, calls: int) -> dict[str, float]:
    peer.clear()
    peer.send(task, calls)
    peer.wait_for(calls, WAIT_S)
    rows = peer.rows()
    first_ns = min(sent for sent, _ in rows)
    last_ns = max(started for _, started in rows)
    sent_ns = max(sent for sent, _ in rows)
    return {
        "calls_per_s": len(rows) / ((last_ns - first_ns) / 1e9),
        "sent_per_s": len(rows) / ((sent_ns - first_ns) / 1e9),
    }


def _latency(peer: TaskPeer, task: str) -> dict[str, float]:
    peer.clear()
    peer.send(task, LATENCY_CALLS, LATENCY_PAUSE_S)
    peer.wait_for(LATENCY_CALLS, WAIT_S)
    late_ms = sorted((started - sent) / 1e6 for sent, started in peer.rows())
    return {
        "start_ms_p50": late_ms[len(late_ms) // 2],
        "start_ms_p99": late_ms[len(late_ms) * 99 // 100],
    }
