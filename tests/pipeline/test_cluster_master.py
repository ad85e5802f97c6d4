"""The pipeline on a real Spark cluster: a standalone master with two workers on this machine."""

from __future__ import annotations

import contextlib
import os
import random
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

pyspark = pytest.importorskip(
    "pyspark", reason="pyspark is missing: make setup, or pip install kafkaesque-platform[spark]"
)

from confluent_kafka import Producer  # noqa: E402
from confluent_kafka.admin import AdminClient, NewTopic  # noqa: E402
from tests.waiting import eventually  # noqa: E402

from kafkaesque.lab.faults.pipeline.driver import ARCHIVE  # noqa: E402
from kafkaesque.lab.faults.pipeline.kills import KillSettings, finish, run_kills  # noqa: E402
from kafkaesque.pipeline.errors import PipelineError  # noqa: E402
from kafkaesque.pipeline.java import find_java  # noqa: E402
from kafkaesque.testing.broker_process import BrokerProcess  # noqa: E402

pytestmark = [pytest.mark.slow_spark, pytest.mark.timeout(900)]

HOME = Path(pyspark.__file__).parent


@dataclass(frozen=True)
class Daemon:
    """A Spark daemon in a process group of its own, with all processes that it starts."""

    process: subprocess.Popen[bytes]
    log: Path
    announced: str
    """Text of the line that announces readiness."""

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)


@dataclass(frozen=True)
class SparkCluster:
    address: str
    workers: list[Daemon]


@contextlib.contextmanager
def spark_class(log: Path, java: Path, *words: str, ready: str) -> Iterator[Daemon]:
    """Starts a Spark daemon as a child process and waits until it is ready."""
    environment = {
        **os.environ,
        "JAVA_HOME": str(java),
        "SPARK_HOME": str(HOME),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_WORKER_DIR": str(log.with_suffix(".work")),
        "SPARK_NO_DAEMONIZE": "1",
    }
    with log.open("wb") as output:
        child = subprocess.Popen(
            [str(HOME / "bin" / "spark-class"), *words],
            stdout=output,
            stderr=subprocess.STDOUT,
            env=environment,
            start_new_session=True,
        )
    try:

        def announcement() -> re.Match[str] | None:
            assert child.poll() is None, log.read_text()
            return re.search(ready, log.read_text())

        found = eventually(announcement, f"{words[0]} is ready")
        yield Daemon(child, log, found[1])
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[SparkCluster]:
    try:
        java = find_java(os.environ, tmp_path).home
    except PipelineError as error:
        pytest.skip(f"a Spark cluster cannot be started: {error}")
    package = "org.apache.spark.deploy"
    with contextlib.ExitStack() as stack:
        address = stack.enter_context(
            spark_class(
                tmp_path / "master.log",
                java,
                f"{package}.master.Master",
                *("--host", "127.0.0.1", "--port", "0", "--webui-port", "0"),
                ready=r"Starting Spark master at (spark://\S+)",
            )
        ).announced
        workers = [
            stack.enter_context(
                spark_class(
                    tmp_path / f"worker{number}.log",
                    java,
                    f"{package}.worker.Worker",
                    *("--host", "127.0.0.1", "--webui-port", "0", "-c", "1", "-m", "600m", address),
                    ready=r"(Successfully registered with master)",
                )
            )
            for number in range(2)
        ]
        yield SparkCluster(address, workers)


def fill(bootstrap: str, count: int) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic("t", 2)])["t"].result()
    producer = Producer({"bootstrap.servers": bootstrap})
    try:
        for number in range(count):
            producer.produce("t", b"%d" % number, partition=number % 2)
        assert producer.flush(30) == 0
    finally:
        producer.close()


def has_executor(worker: Daemon) -> bool:
    return "Asked to launch executor" in worker.log.read_text()


def test_archive_on_two_workers_is_complete(cluster: SparkCluster, tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "broker") as broker:
        fill(broker.bootstrap_servers, 1000)
        settings = KillSettings(
            broker.bootstrap_servers,
            "t",
            tmp_path / "p",
            rows_max=400,
            master=cluster.address,
            sinks=(ARCHIVE,),
        )
        report = run_kills(settings, ["after-commit"], random.Random(3))
        assert [(sink.rows, sink.missing, sink.doubled) for sink in report.sinks] == [(1000, 0, 0)]
    assert all(has_executor(worker) for worker in cluster.workers)


def test_worker_killed_in_mid_stream_loses_no_row(cluster: SparkCluster, tmp_path: Path) -> None:
    """kill -9 of one of two workers, its executor and its Python processes, after a few batches."""
    with BrokerProcess(tmp_path / "broker") as broker:
        fill(broker.bootstrap_servers, 2000)
        settings = KillSettings(
            broker.bootstrap_servers,
            "t",
            tmp_path / "p",
            rows_max=100,
            master=cluster.address,
            sinks=(ARCHIVE,),
        )
        ended = threading.Event()
        killed_after: list[int] = []
        feed = settings.data.feed(ARCHIVE)

        def kill() -> None:
            while not ended.wait(0.05):
                batches = feed.read_text().count("\n") if feed.exists() else 0
                if batches >= 3 and all(has_executor(worker) for worker in cluster.workers):
                    cluster.workers[0].kill()
                    killed_after.append(batches)
                    return

        killer = threading.Thread(target=kill)
        killer.start()
        try:
            report = finish(settings, 1)
        finally:
            ended.set()
            killer.join()
        assert [(sink.rows, sink.missing, sink.doubled) for sink in report.sinks] == [(2000, 0, 0)]
    assert killed_after
    assert killed_after[0] < 20, "the stream ended before the kill"
