"""What it costs to be there: idle connections, and members of consumer groups that heartbeat."""

from __future__ import annotations

import time
from typing import Any

from kafkaesque.bench.launcher import HeldLoad
from kafkaesque.bench.peers import Peer, PeerOptions, running
from kafkaesque.bench.report import Report
from kafkaesque.bench.turns import RunOptions, new_report

KIB = 1024


def run(options: RunOptions) -> Report:
    connections, members = options.pick(10_000, 1_000), options.pick(1_000, 100)
    groups = 10
    hold_s = options.pick(15, 5)
    settings = {"connections": connections, "members": members, "groups": groups}
    report = new_report("idle", options, {**settings, "hold_s": hold_s})
    peer_options = PeerOptions(options.directory, loop=options.loop)
    names = tuple(name for name in options.peers if name != "floor")
    with running(names, peer_options) as peers:
        report.peers = {peer.name: peer.described for peer in peers}
        for peer in peers:
            idle = _hold(peer, "idle", {"count": connections}, hold_s)
            report.case(f"{connections:,} idle connections").add(peer.name, idle)
            options.say(f"{peer.name}: {connections} connections, {idle['rss_mb']:.0f} MB")
            # One group too: the leader then carries the metadata of every member.
            for count in (groups, 1):
                spec = {"count": members, "groups": count, "prefix": f"of-{count}"}
                held = _hold(peer, "members", spec, hold_s)
                title = f"{members:,} members in {count} consumer group{'s' * (count > 1)}"
                report.case(title).add(peer.name, held)
                options.say(f"{peer.name}: {title}, {held['rss_mb']:.0f} MB")
    return report


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
