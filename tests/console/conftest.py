"""A broker with data of every kind and a console that shows it, shared by the tests of this package."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.console.running_console import HOSTILE, PASSWORD, RunningConsole, read_as_group, write
from tests.waiting import eventually

import kafkaesque.broker.node  # noqa: F401  loaded before the clock of `Broker.start` runs
from kafkaesque.console.web.config import ConsoleConfig
from kafkaesque.testing import Broker

SPARK_PROGRESS = {
    "name": "posts",
    "batchId": 3,
    "timestamp": "2026-11-16T05:00:00.000Z",
    "numInputRows": 50,
    "processedRowsPerSecond": 12.5,
    "durationMs": {"triggerExecution": 800},
    "eventTime": {"watermark": "2026-11-16T04:58:00.000Z"},
    "stateOperators": [{"numRowsTotal": 9, "numRowsDroppedByWatermark": 0}],
    "sources": [
        {"endOffset": {"social.posts": {"0": 96}}, "latestOffset": {"social.posts": {"0": 100}}}
    ],
}
ORDERS = 300
READ = 120


@pytest.fixture(scope="session")
def broker() -> Iterator[Broker]:
    with Broker(settings={"num.partitions": 1}) as running:
        servers = running.bootstrap_servers
        orders = [
            json.dumps(
                {"id": n, "state": "open" if n % 3 else "late", "user": {"id": n % 7}}
            ).encode()
            for n in range(ORDERS)
        ]
        write(servers, "orders", [*orders])
        write(servers, "hostile", [*HOSTILE])
        write(servers, "copies", [b"first"])
        now = int(time.time() * 1000)
        trends = [
            json.dumps({"window_start_ms": now - 600_000, "window_end_ms": now, "hashtag": tag,
                        "posts": posts, "recent": 1, "authors": 2, "burst": 3.5}).encode()
            for tag, posts in (("kafka", 40), ("raft", 30), ("<b>bold</b>", 20))
        ]  # fmt: skip
        write(servers, "trends", [*trends])
        read_as_group(servers, "billing", "orders", READ)
        yield running


@pytest.fixture(scope="session")
def pipeline_data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A batch in Spark's progress format, written by the pipeline's own writer."""
    from kafkaesque.pipeline.operate.progress import summarize
    from kafkaesque.pipeline.operate.status import append_feed, write_status
    from kafkaesque.pipeline.paths import PipelineDirectory

    data = PipelineDirectory(tmp_path_factory.mktemp("pipeline"))
    batch = summarize("posts", SPARK_PROGRESS).as_json()
    write_status(data.status("posts"), {"state": "running", "failure": None, **batch})
    append_feed(data.feed("posts"), batch)
    return data.root


@pytest.fixture(scope="session")
def console(broker: Broker, pipeline_data: Path) -> Iterator[RunningConsole]:
    config = ConsoleConfig(
        bootstrap=broker.bootstrap_servers,
        password=PASSWORD,
        metrics=(f"http://{broker.http_address}/metrics",),
        pipeline_data=pipeline_data,
        chat_url="http://127.0.0.1:7001/",
    )
    with RunningConsole(config) as running:
        running.wait_for_topics("orders", "hostile", "copies", "trends")
        running.wait_for_group("billing", lag=ORDERS - READ)
        eventually(lambda: running.get("/api/brokers")["metrics"], "metrics are scraped")
        yield running
