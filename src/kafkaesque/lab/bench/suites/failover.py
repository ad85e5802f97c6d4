"""kill -9 of one of three brokers: time until its partitions have new leaders that acknowledge."""

from __future__ import annotations

import time

from kafkaesque.lab.bench.clusters import BROKERS, REPLICAS, OurCluster, our_cluster
from kafkaesque.lab.bench.recovery import wait_until_acknowledged
from kafkaesque.lab.bench.report import BenchmarkReport
from kafkaesque.lab.bench.rounds import BenchmarkOptions, new_report

TOPIC = "failover"
VICTIM = 2
"""Not the controller, whose loss costs one more election and has its own case."""
TIMEOUT_S = 120.0


def run(options: BenchmarkOptions) -> BenchmarkReport:
    partitions = options.pick(1_000, 60)
    settings = {"brokers": BROKERS, "replication_factor": REPLICAS, "partitions": partitions}
    report = new_report("failover", options, settings)
    for title, victim in (("a broker", VICTIM), ("the controller's broker", 0)):
        case = report.case(f"kill -9 of {title}, {partitions:,} partitions")
        for _ in range(options.rounds):
            with our_cluster(options.directory / "failover") as cluster:
                report.peers["ours"] = cluster.described
                figures = _fail_over(cluster, partitions, victim)
            case.add("ours", figures)
            options.say(f"kill -9 of {title}: {figures}")
    report.notes.append("seconds since the kill; a produce with acks=all to every partition it led")
    return report


def _fail_over(cluster: OurCluster, partitions: int, victim: int) -> dict[str, float]:
    cluster.create_topic(TOPIC, partitions)
    wait_until_acknowledged(
        cluster.addresses,
        TOPIC,
        range(partitions),
        started=time.perf_counter(),
        timeout_s=TIMEOUT_S,
    )
    leaders = cluster.leaders(TOPIC)
    led = [index for index in range(partitions) if leaders[index] == cluster.addresses[victim]]
    rest = [address for address in cluster.addresses if address != cluster.addresses[victim]]
    cpu_before = cluster.cpu_seconds_each()
    cluster.kill(victim)
    started = time.perf_counter()
    seen = wait_until_acknowledged(rest, TOPIC, led, started=started, timeout_s=TIMEOUT_S)
    cpu_after = cluster.cpu_seconds_each()
    spent = [cpu_after[n] - cpu_before[n] for n in range(BROKERS) if n != victim]
    return {"leaderships": len(led), **seen.figures(), "survivors_cpu_s": sum(spent)}
