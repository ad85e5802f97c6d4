"""Many replicated partitions with nothing to do: creation, chatter between brokers, CPU, memory.

At two sizes, to show that the chatter does not grow with the number of partitions.
"""

from __future__ import annotations

import time
from statistics import mean

from kafkaesque.lab.bench.clusters import BROKERS, REPLICAS, OurCluster, our_cluster
from kafkaesque.lab.bench.figures import Goal, GoalComparison, Summary
from kafkaesque.lab.bench.raw_load import LoadFailed
from kafkaesque.lab.bench.report import BenchmarkReport
from kafkaesque.lab.bench.rounds import BenchmarkOptions, new_report
from kafkaesque.lab.harness.metrics import Scrape
from kafkaesque.testing.waiting import poll_until

ASLEEP_TIMEOUT_S = 60.0
POLL_S = 0.5
COUNTS = ("sent_messages", "sent_frames", "sent_pulses", "sent_bytes")


def run(options: BenchmarkOptions) -> BenchmarkReport:
    sizes = (options.pick(100, 20), options.pick(1_000, 100))
    # Longer than the minute after which a broker wakes all groups once.
    hold_s = options.pick(75, 5)
    settings = {"rounds": 1, "brokers": BROKERS, "replication_factor": REPLICAS, "hold_s": hold_s}
    report = new_report("idle-partitions", options, settings)
    figures = {}
    for partitions in sizes:
        case = report.case(f"{partitions:,} partitions")
        with our_cluster(options.directory / f"idle-{partitions}") as cluster:
            report.peers["ours"] = cluster.described
            figures[partitions] = _measure(cluster, partitions, hold_s)
        case.add("ours", figures[partitions])
        report.hold(case, "cpu_share_busiest", Goal("at most", 0.1))
        options.say(f"{partitions:,} partitions: {figures[partitions]}")
    small, large = (figures[size]["peer_frames_per_s"] for size in sizes)
    ratio = Summary((large / small,))
    title = f"{sizes[1]:,} partitions"
    what = f"peer_frames_per_s, beside those of {sizes[0]} partitions"
    report.comparisons.append(GoalComparison(title, what, ratio, Goal("at most", 1.2)))
    report.notes.append("per broker; a peer frame is one write of messages or one ping or answer")
    return report


def _measure(cluster: OurCluster, partitions: int, hold_s: float) -> dict[str, float]:
    created_s = cluster.create_topic("idle", partitions)
    asleep_s = _wait_until_asleep(cluster)
    before = _scrape_all(cluster)
    cpu_before = cluster.cpu_seconds_each()
    started = time.perf_counter()
    time.sleep(hold_s)
    elapsed_s = time.perf_counter() - started
    cpu = [now - then for now, then in zip(cluster.cpu_seconds_each(), cpu_before, strict=True)]
    after = _scrape_all(cluster)
    per_s = {
        name: mean(
            (now.sum(f"kafkaesque_link_{name}_total") - then.sum(f"kafkaesque_link_{name}_total"))
            / elapsed_s
            for now, then in zip(after, before, strict=True)
        )
        for name in COUNTS
    }
    elections = sum(
        now.sum("kafkaesque_raft_terms_total") - then.sum("kafkaesque_raft_terms_total")
        for now, then in zip(after, before, strict=True)
    )
    return {
        "create_s": created_s,
        "until_asleep_s": asleep_s,
        "peer_frames_per_s": per_s["sent_frames"] + per_s["sent_pulses"],
        "raft_messages_per_s": per_s["sent_messages"],
        "peer_bytes_per_s": per_s["sent_bytes"],
        "cpu_share_per_broker": mean(cpu) / elapsed_s,
        "cpu_share_busiest": max(cpu) / elapsed_s,
        "rss_mb_per_broker": mean(cluster.rss_bytes_each()) / 1e6,
        "open_files_per_broker": cluster.open_files() / BROKERS,
        "new_terms": elections,
    }


VISITED_GROUPS_MAX = 20
"""Every broker wakes one group per second for a check; the group is idle again after three seconds."""


def _scrape_all(cluster: OurCluster) -> list[Scrape]:
    return [cluster.scrape(number) for number in range(BROKERS)]


def _wait_until_asleep(cluster: OurCluster) -> float:
    started = time.perf_counter()
    poll_until(
        lambda: all(
            one.sum("kafkaesque_raft_groups_awake") <= VISITED_GROUPS_MAX
            for one in _scrape_all(cluster)
        ),
        "all idle groups are quiescent",
        ASLEEP_TIMEOUT_S,
        poll_s=POLL_S,
        error=LoadFailed,
    )
    return time.perf_counter() - started
