"""One Spark session and one broker for all tests of the pipeline in a process.

Tests that need them ask for `spark` or `broker`; where Java or a package is missing, those tests are
skipped and say how to get it.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer

from kafkaesque.pipeline.errors import PipelineError
from kafkaesque.testing import Broker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Produce = Callable[..., None]

TIMEOUT_S = 2400
"""A session starts in 6 s on a quiet machine and in minutes on a very busy one; a test that is cut off
in a call to the JVM takes all others of its process with it."""


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "slow_spark: real processes and further JVMs; run by `pytest -m slow_spark`"
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    wanted = "slow_spark" in (config.getoption("markexpr") or "")
    for item in items:
        if not item.path.is_relative_to(here):
            continue
        if item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(TIMEOUT_S))
        if item.get_closest_marker("slow_spark") is not None and not wanted:
            item.add_marker(pytest.mark.skip(reason="minutes: pytest -m slow_spark tests/pipeline"))


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    from kafkaesque.pipeline.session import SessionSettings, start_session

    scratch = Path(tempfile.mkdtemp(prefix="kafkaesque-spark-"))
    try:
        session = start_session(
            SessionSettings(
                scratch, master="local[2]", shuffle_partitions=2, app_name="tests", is_brief=True
            )
        )
    except PipelineError as error:
        pytest.skip(f"Spark cannot be started here: {error}")
    yield session
    session.stop()
    shutil.rmtree(scratch, ignore_errors=True)


@pytest.fixture(scope="session")
def connector(spark: SparkSession) -> None:
    """Skip where Spark's own Kafka connector is not on this machine."""
    from kafkaesque.pipeline.source.reading import has_connector

    if not has_connector(spark):
        pytest.skip("Spark's Kafka connector is not here: `kafkaesque pipeline jars --fetch`")


@pytest.fixture(scope="session")
def broker() -> Iterator[Broker]:
    # The thread of the broker has half a minute to start, and would import all of it in that time.
    import_module("kafkaesque.broker.node")
    with Broker(settings={"auto.create.topics.enable": False}) as running:
        yield running


@pytest.fixture
def topic(broker: Broker, request: pytest.FixtureRequest) -> str:
    """A topic of two partitions of its own."""
    name = f"t{abs(hash(request.node.nodeid)) % 10**10}"
    broker.create_topic(name, 2, retention_ms=-1)
    return name


@pytest.fixture
def produce(broker: Broker) -> Produce:
    """produce(topic, [value or dict(value=, key=, partition=, headers=, timestamp=), ...])"""

    def send(topic: str, rows: Sequence[bytes | dict[str, Any] | None]) -> None:
        # A new one each time: it must not remember a topic as it was before.
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0})
        for row in rows:
            fields = row if isinstance(row, dict) else {"value": row}
            producer.produce(topic, **fields)
        assert producer.flush(30) == 0
        producer.close()

    return send


@pytest.fixture
def options(broker: Broker) -> Callable[..., dict[str, str]]:
    """Options of a read from the broker."""

    def make(topic: str, **more: str) -> dict[str, str]:
        return {
            "kafka.bootstrap.servers": broker.bootstrap_servers,
            "subscribe": topic,
            "startingOffsets": "earliest",
            **more,
        }

    return make


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """This process's environment with a cache of its own."""
    return {**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache")}
