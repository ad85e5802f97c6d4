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
from pathlib import Path

import pytest

pyspark = pytest.importorskip(
    "pyspark", reason="pyspark is missing: make setup, or pip install kafkaesque-platform[spark]"
)

from confluent_kafka import Producer  # noqa: E402
from confluent_kafka.admin import AdminClient, NewTopic  # noqa: E402

from kafkaesque.pipeline.driver_kill import KillSettings, run_kills  # noqa: E402
from kafkaesque.pipeline.errors import PipelineError  # noqa: E402
from kafkaesque.pipeline.java import find_java  # noqa: E402
from kafkaesque.testing.broker_process import BrokerProcess  # noqa: E402

pytestmark = [pytest.mark.slow_spark, pytest.mark.timeout(900)]

HOME = Path(pyspark.__file__).parent


@contextlib.contextmanager
def spark_class(log: Path, java: Path, *words: str, ready: str) -> Iterator[re.Match[str]]:
    """A daemon of Spark as a child; yields the match of the line that says it is ready."""
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
        pause = threading.Event()
        while (found := re.search(ready, log.read_text())) is None:
            assert child.poll() is None, log.read_text()
            pause.wait(0.2)
        yield found
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()


@pytest.fixture
def master(tmp_path: Path) -> Iterator[str]:
    try:
        java = find_java(os.environ, tmp_path).home
    except PipelineError as error:
        pytest.skip(str(error))
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
        )[1]
        for number in range(2):
            stack.enter_context(
                spark_class(
                    tmp_path / f"worker{number}.log",
                    java,
                    f"{package}.worker.Worker",
                    *("--host", "127.0.0.1", "--webui-port", "0", "-c", "1", "-m", "600m", address),
                    ready=r"(Successfully registered with master)",
                )
            )
        yield address


def test_archive_on_two_workers_is_whole(master: str, tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "broker") as broker:
        bootstrap = broker.bootstrap_servers
        admin = AdminClient({"bootstrap.servers": bootstrap})
        admin.create_topics([NewTopic("t", 2)])["t"].result()
        producer = Producer({"bootstrap.servers": bootstrap})
        for number in range(1000):
            producer.produce("t", b"%d" % number, partition=number % 2)
        assert producer.flush(30) == 0
        settings = KillSettings(
            bootstrap, "t", tmp_path / "p", rows_max=400, master=master, sinks=("archive",)
        )
        report = run_kills(settings, ["after-commit"], random.Random(3))
        assert [(sink.rows, sink.missing, sink.doubled) for sink in report.sinks] == [(1000, 0, 0)]
    worked = [
        log for log in tmp_path.glob("worker*.log") if "Asked to launch executor" in log.read_text()
    ]
    assert len(worked) == 2
