"""The cost of idle connections, and of consumer group members that only send heartbeats."""

from __future__ import annotations

import time
from typing import Any

from kafkaesque.lab.bench.load_process import HeldLoad
from kafkaesque.lab.bench.peers import Peer, PeerOptions, peer_label, running
from kafkaesque.lab.bench.report import BenchmarkReport
from kafkaesque.lab.bench.rounds import BenchmarkOptions, new_report

KIB = 1024


def run(options: BenchmarkOptions) -> BenchmarkReport:
    connections, members = options.pick(10_000, 1_000), options.pick(1_000, 100)
    groups = 10
    hold_s = options.pick(15, 5)
    settings = {"rounds": 1, "connections": connections, "members": members, "groups": groups}
    report = new_report("idle", options, {**settings, "hold_s": hold_s})
    # Also in one group, whose leader then receives the metadata of every member.
    cases: list[tuple[str, str, dict[str, Any]]] = [
        (f"{connections:,} idle connections", "idle", {"count": connections}),
        (f"{members:,} members in {groups} consumer groups", "members", _members(members, groups)),
        (f"{members:,} members in one consumer group", "members", _members(members, 1)),
    ]
    for title, kind, spec in cases:
        for name in options.peers:
            if name == "floor":
                continue
            # Each case has its own server: a process rarely returns memory that it has used.
            with running([name], PeerOptions(options.directory / peer_label(name))) as (peer,):
                report.peers[peer.name] = peer.described
                figures = _hold(peer, kind, spec, hold_s)
            report.case(title).add(peer.name, figures)
            options.say(f"{peer.name}: {title}, {figures['rss_mb']:.0f} MB")
    return report


def _members(count: int, groups: int) -> dict[str, Any]:
    return {"count": count, "groups": groups, "prefix": f"of-{groups}"}


def _hold(peer: Peer, kind: str, spec: dict[str, Any], hold_s: float) -> dict[str, float]:
    rss_before, cpu_before = peer.rss_bytes(), peer.cpu_seconds()
    load = HeldLoad(kind, {"host": peer.host, "port": peer.port, **spec})
    try:
        held = load.wait_until_held()
        cpu_held = peer.cpu_seconds()
        time.sleep(hold_s)
        cpu_after, rss_bytes = peer.cpu_seconds(), peer.rss_bytes()
        open_files = peer.open_files()
        counted = load.release()
    finally:
        load.abandon()
    figures = {
        "time_to_hold_s": held["elapsed_s"],
        "cpu_s_to_hold": cpu_held - cpu_before,
        "rss_mb": rss_bytes / 1e6,
        "rss_kib_each": (rss_bytes - rss_before) / spec["count"] / KIB,
        "open_files": open_files,
        "cpu_share_while_held": (cpu_after - cpu_held) / hold_s,
    }
    figures |= {name: value for name, value in counted.items() if name != "process_cpu_s"}
    return figures
