"""One Spark session and one broker per process for all tests of the pipeline.

Tests request the fixtures `spark` and `broker`. If Java or a package is missing, these tests are
skipped with a message that says how to install it.
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
"""A session starts in 6 s on an idle machine and in minutes on a very busy one. A test that times out in
a call to the JVM ends all other tests of its process."""


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
            item.add_marker(
                pytest.mark.skip(
                    reason="takes minutes; run it with `make pipeline-slow` or `pytest -m slow_spark tests/pipeline`"
                )
            )


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
        pytest.skip(f"Spark cannot be started: {error}")
    yield session
    session.stop()
    shutil.rmtree(scratch, ignore_errors=True)


@pytest.fixture(scope="session")
def connector(spark: SparkSession) -> None:
    """Skips the test if the jars of Spark's own Kafka connector are not on this machine."""
    from kafkaesque.pipeline.source.reading import has_connector

    if not has_connector(spark):
        pytest.skip(
            "the jars of Spark's Kafka connector are missing: run `kafkaesque pipeline jars --fetch`"
        )


@pytest.fixture(scope="session")
def broker() -> Iterator[Broker]:
    # Imported before: the broker's thread has half a minute to start, imports included.
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
        # A new producer each time, because it would cache the metadata of a recreated topic.
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0})
        for row in rows:
            fields = row if isinstance(row, dict) else {"value": row}
            producer.produce(topic, **fields)
        assert producer.flush(30) == 0
        producer.close()

    return send


@pytest.fixture
def options(broker: Broker) -> Callable[..., dict[str, str]]:
    """Returns a function that makes the options of a read from the broker."""

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
