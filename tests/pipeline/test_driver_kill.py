"""kill -9 of the driver, its JVM and its workers, then a check of every sink. Real processes."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafkaesque.testing.broker_process import BrokerProcess

pytest.importorskip(
    "pyspark", reason="pyspark is missing: make setup, or pip install kafkaesque-platform[spark]"
)
pytest.importorskip(
    "deltalake",
    reason="deltalake is missing: make setup, or pip install kafkaesque-platform[spark]",
)

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from kafkaesque.lab.faults.pipeline.driver import ARCHIVE, SINKS
from kafkaesque.lab.faults.pipeline.kills import POINTS, RANDOM, KillSettings, run_kills

pytestmark = pytest.mark.timeout(3600)


def fill(bootstrap: str, count: int) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(count):
        producer.produce("t", b"%d" % number, partition=number % 2)
    assert producer.flush(30) == 0


@pytest.fixture
def broker_process(tmp_path: Path) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path / "broker") as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        for name in ("t", "relay.out"):
            admin.create_topics([NewTopic(name, 2)])[name].result()
        yield broker


def settings(broker: BrokerProcess, data: Path, **more: object) -> KillSettings:
    return KillSettings(broker.bootstrap_servers, "t", data, **more)  # type: ignore[arg-type]


def test_driver_killed_in_its_first_batch_leaves_the_table_complete(
    broker_process: BrokerProcess, tmp_path: Path
) -> None:
    """Files are written but in no commit, and Spark asks the source for its start offsets again."""
    fill(broker_process.bootstrap_servers, 600)
    wanted = settings(broker_process, tmp_path / "p", rows_max=200, sinks=(ARCHIVE,))
    report = run_kills(wanted, ["before-commit"], random.Random(1))
    assert [(sink.rows, sink.missing, sink.doubled) for sink in report.sinks] == [(600, 0, 0)]
    assert wanted.data.checkpoint(ARCHIVE).joinpath("commits", "0").exists()


@pytest.mark.slow_spark
def test_kill_at_each_point_around_a_commit_neither_loses_nor_duplicates_rows(
    broker_process: BrokerProcess, tmp_path: Path
) -> None:
    fill(broker_process.bootstrap_servers, 6000)
    report = run_kills(
        settings(broker_process, tmp_path / "p", rows_max=200), POINTS, random.Random(1)
    )
    assert [sink.sink for sink in report.sinks] == list(SINKS)
    assert all(sink.is_whole and sink.rows == 6000 for sink in report.sinks), report


@pytest.mark.slow_spark
def test_kill_at_random_moments_neither_loses_nor_duplicates_rows(
    broker_process: BrokerProcess, tmp_path: Path
) -> None:
    fill(broker_process.bootstrap_servers, 20_000)
    report = run_kills(
        settings(broker_process, tmp_path / "p", rows_max=300), [RANDOM] * 4, random.Random(7)
    )
    assert all(sink.is_whole and sink.rows == 20_000 for sink in report.sinks), report
