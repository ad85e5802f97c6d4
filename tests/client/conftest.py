from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from kafkaesque.client.kafka import KafkaLog
from kafkaesque.client.memory import MemoryLog
from kafkaesque.client.ports import Log
from kafkaesque.testing import Broker


@pytest.fixture(scope="session")
def broker() -> Iterator[Broker]:
    with Broker() as running:
        yield running


@pytest.fixture(params=["kafka", "memory"])
def make_log(request: pytest.FixtureRequest) -> Callable[[], Log]:
    """A factory for the log over librdkafka and for the in-memory log. Called inside the test's event loop."""
    if request.param == "memory":
        return MemoryLog
    address = request.getfixturevalue("broker").bootstrap_servers
    return lambda: KafkaLog(address)
