"""One broker with some of everything, and a console that looks at it, for the tests of this package."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.console.stage import HOSTILE, PASSWORD, RunningConsole, read_as_group, until, write

import kafkaesque.broker.node  # noqa: F401  loaded before the clock of `Broker.start` runs
from kafkaesque.console.web.config import ConsoleConfig
from kafkaesque.testing import Broker

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
    data = tmp_path_factory.mktemp("pipeline")
    home = data / "queries" / "posts"
    home.mkdir(parents=True)
    batch = {"batch": 3, "at": "2026-11-16T05:00:00Z", "input_rows": 50, "rows_per_s": 12.5,
             "duration_ms": 800, "lag_records": 4, "late_rows": 0, "state_rows": 9,
             "watermark": "2026-11-16T04:58:00Z"}  # fmt: skip
    (home / "status.json").write_text(
        json.dumps({"query": "posts", "state": "running", "failure": None, **batch})
    )
    (home / "progress.jsonl").write_text(json.dumps(batch) + "\n")
    return data


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
        until(lambda: running.get("/api/brokers")["metrics"], "metrics are scraped")
        yield running
