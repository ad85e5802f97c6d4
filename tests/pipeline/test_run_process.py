"""`kafkaesque pipeline run` as `kafkaesque up` starts it: ready, observed over HTTP, stopped cleanly."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

pytest.importorskip(
    "pyspark", reason="pyspark is missing: make setup, or pip install kafkaesque-platform[spark]"
)

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from tests.waiting import eventually

from kafkaesque.testing.broker_process import BrokerProcess

pytestmark = pytest.mark.timeout(1800)

COMMAND = [sys.executable, "-m", "kafkaesque.cli.main"]
WAIT_S = 300.0


@contextmanager
def started(log: Path, *words: str) -> Iterator[tuple[subprocess.Popen[bytes], dict[str, str]]]:
    with log.open("wb") as errors:
        process = subprocess.Popen(
            [*COMMAND, *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            start_new_session=True,
        )
    try:
        assert process.stdout is not None
        line = process.stdout.readline().decode()
        assert line.startswith("ready "), line + log.read_text()
        yield process, dict(word.split("=", 1) for word in line.split()[1:])
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()


def fetch(facts: dict[str, str], path: str) -> str:
    with urllib.request.urlopen(f"http://{facts['http']}{path}") as response:
        return str(response.read().decode())


def test_archive_with_once_reads_the_log_and_exits(tmp_path: Path) -> None:
    from deltalake import DeltaTable

    data = tmp_path / "pipeline"
    with BrokerProcess(tmp_path / "broker") as broker:
        bootstrap = broker.bootstrap_servers
        admin = AdminClient({"bootstrap.servers": bootstrap})
        admin.create_topics([NewTopic("t", 2)])["t"].result()
        producer = Producer({"bootstrap.servers": bootstrap})
        try:
            for number in range(100):
                producer.produce("t", b"%d" % number, partition=number % 2)
            assert producer.flush(60) == 0
        finally:
            producer.close()
        words = ("pipeline", "run", "archive", "--once", "-b", bootstrap, "--data", str(data),
                 "--master", "local[2]", "--set", "archive.topics=t")  # fmt: skip
        with started(tmp_path / "log", *words) as (process, facts):
            assert facts["queries"] == "archive"
            assert process.wait(WAIT_S) == 0, (tmp_path / "log").read_text()
    rows = DeltaTable(data / "tables" / "archive").to_pyarrow_table(columns=["partition", "offset"])
    found = sorted((row["partition"], row["offset"]) for row in rows.to_pylist())
    assert found == [(index, offset) for index in range(2) for offset in range(50)]


@pytest.mark.slow_spark
def test_light_set_starts_on_a_fresh_broker_serves_status_and_stops_cleanly(tmp_path: Path) -> None:
    data = tmp_path / "pipeline"
    with BrokerProcess(tmp_path / "broker") as broker:
        bootstrap = broker.bootstrap_servers
        words = ("pipeline", "run", "light", "-b", bootstrap, "--data", str(data), "--every", "1",
                 "--driver-memory", "1g", "--master", "local[2]", "--end-with-stdin")  # fmt: skip
        with started(tmp_path / "log", *words) as (process, facts):
            assert facts["queries"] == "posts,trends-live,chat-stages"
            assert json.loads((data / "pipeline.json").read_text()) == facts
            assert fetch(facts, "/readyz") == "ready\n"
            posts = (
                *(*COMMAND, "source", "run", "-b", bootstrap, "--rate", "200", "--limit", "300"),
                *("--data", str(tmp_path / "source")),
            )
            subprocess.run(posts, check=True, capture_output=True, timeout=WAIT_S)

            def rows() -> int:
                queries = json.loads(fetch(facts, "/status"))["queries"]
                by_name = {item["query"]: item for item in queries}
                ends = by_name["posts"].get("end_offsets", {}).get("social.posts", {})
                return sum(ends.values())

            eventually(lambda: rows() >= 300, "all posts are read", WAIT_S)
            assert "kafkaesque_pipeline_input_rows_total" in fetch(facts, "/metrics")
            assert json.loads(fetch(facts, "/progress/posts"))["batches"]
            stop = [*COMMAND, "pipeline", "stop", "chat-stages", "--data", str(data)]
            subprocess.run(stop, check=True, capture_output=True, timeout=WAIT_S)
            # When its supervisor exits, the pipe closes and the other queries stop between two batches.
            assert process.stdin is not None
            process.stdin.close()
            assert process.wait(WAIT_S) == 0
        assert not (data / "pipeline.json").exists()
        shown = subprocess.run(
            [*COMMAND, "pipeline", "status", "--data", str(data), "-b", bootstrap, "--json"],
            check=True,
            capture_output=True,
            timeout=WAIT_S,
        )
        states = {item["query"]: item["state"] for item in json.loads(shown.stdout)["queries"]}
    assert states == dict.fromkeys(("posts", "trends-live", "chat-stages"), "stopped")
