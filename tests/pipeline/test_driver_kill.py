"""kill -9 of the driver, its JVM and its workers, then a look at the table. Real processes."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from kafkaesque.testing.broker_process import BrokerProcess

pytest.importorskip("pyspark", reason="pip install kafkaesque-platform[spark]")
pytest.importorskip("deltalake", reason="pip install kafkaesque-platform[spark]")

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from kafkaesque.pipeline.driver_kill import POINTS, KillSettings, run_kills

pytestmark = [pytest.mark.slow_spark, pytest.mark.timeout(1200)]


def fill(bootstrap: str, count: int) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(count):
        producer.produce("t", b"%d" % number, partition=number % 2)
    assert producer.flush(30) == 0


@pytest.fixture
def broker_process(tmp_path: Path):
    with BrokerProcess(tmp_path / "broker") as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        admin.create_topics([NewTopic("t", 2)])["t"].result()
        yield broker


def test_kill_at_each_point_around_a_commit_loses_and_doubles_nothing(
    broker_process, tmp_path: Path
) -> None:
    fill(broker_process.bootstrap_servers, 2000)
    settings = KillSettings(broker_process.bootstrap_servers, "t", tmp_path / "p")
    report = run_kills(settings, POINTS, random.Random(1))
    assert (report.rows, report.missing, report.doubled) == (2000, 0, 0)


def test_kill_at_random_moments_loses_and_doubles_nothing(broker_process, tmp_path: Path) -> None:
    fill(broker_process.bootstrap_servers, 20_000)
    settings = KillSettings(broker_process.bootstrap_servers, "t", tmp_path / "p", rows_max=300)
    report = run_kills(settings, ["random"] * 4, random.Random(7))
    assert (report.rows, report.missing, report.doubled) == (20_000, 0, 0)
