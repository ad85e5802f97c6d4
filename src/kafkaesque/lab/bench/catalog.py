"""The benchmarks: names, one-line purposes, and how to run one."""

from __future__ import annotations

import importlib
from typing import NamedTuple, cast

from kafkaesque.lab.bench.report import BenchmarkReport
from kafkaesque.lab.bench.rounds import BenchmarkOptions


class CatalogEntry(NamedTuple):
    """A benchmark, described without importing it. `peers` are the default ones."""

    purpose: str
    peers: tuple[str, ...] = ("ours", "floor", "kafka")


CATALOG: dict[str, CatalogEntry] = {
    "start": CatalogEntry("exec to first acknowledged record, and idle memory"),
    "produce": CatalogEntry("produce throughput and cost, raw and with a real client, acks=1"),
    "consume": CatalogEntry(
        "consume throughput and cost from page cache, raw and with a real client"
    ),
    "latency": CatalogEntry("one-at-a-time round trip of an acknowledged record, acks=1"),
    "durable": CatalogEntry("many producers at once, every record synced before acknowledged"),
    "transactions": CatalogEntry(
        "transactions of 1,000 records beside plain idempotent produce", ("ours", "kafka")
    ),
    "idle": CatalogEntry("10,000 idle connections and 1,000 group members", ("ours",)),
    "partitions": CatalogEntry(
        "5,000 partitions: creation, start-up, memory, open files", ("ours",)
    ),
    "replicated": CatalogEntry(
        "three brokers, replication 3, acks=all: throughput and cost", ("ours", "kafka")
    ),
    "idle-partitions": CatalogEntry(
        "1,000 idle partitions on three brokers: chatter, CPU", ("ours",)
    ),
    "active-partitions": CatalogEntry(
        "1,000 partitions, each record synced on a majority: latency, fsyncs", ("ours",)
    ),
    "failover": CatalogEntry("kill -9 of one of three brokers with 1,000 partitions", ("ours",)),
    "recover-all": CatalogEntry(
        "kill -9 of all three brokers: first record after restart", ("ours",)
    ),
    "wiped-replica": CatalogEntry(
        "recovery of a wiped broker while producers keep sending", ("ours",)
    ),
    "compaction": CatalogEntry(
        "a compacted topic: cleaning speed, size before and after, p99 meanwhile", ("ours",)
    ),
    "coordination": CatalogEntry(
        "znodes read and written by kazoo, three servers beside ZooKeeper's: Maven's and Debian's",
        ("ours", "zookeeper", "zookeeper-debian"),
    ),
    "sync-methods": CatalogEntry("ways to make appends to many files durable", ("ours",)),
    "tasks": CatalogEntry(
        "no-op and 1 ms tasks beside Celery, Dramatiq and taskiq on Redis",
        ("ours", "celery", "dramatiq", "taskiq"),
    ),
    "pipeline": CatalogEntry(
        "Spark's Python source beside its own connector; event to table", ("ours",)
    ),
}


def run(name: str, options: BenchmarkOptions) -> BenchmarkReport:
    suite = importlib.import_module(f"kafkaesque.lab.bench.suites.{name.replace('-', '_')}")
    return cast(BenchmarkReport, suite.run(options))
