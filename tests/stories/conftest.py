"""Stories: a real broker process, real clients, real faults."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from kafkaesque.testing.broker_process import BrokerProcess

SETTINGS = {"group.initial.rebalance.delay.ms": 0, "offsets.topic.num.partitions": 4}

StartBroker = Callable[..., BrokerProcess]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.story)


@pytest.fixture
def start_broker(tmp_path: Path) -> Iterator[StartBroker]:
    """Start brokers by `start_broker(settings, directory=...)`; all are ended with the test."""
    started: list[BrokerProcess] = []

    def start(
        settings: Mapping[str, object] | None = None,
        *,
        directory: Path | None = None,
        listen: str = "127.0.0.1:0",
    ) -> BrokerProcess:
        everything = {**SETTINGS, **(settings or {})}
        broker = BrokerProcess(directory or tmp_path, everything, listen=listen)
        started.append(broker)
        return broker.start()

    yield start
    for broker in started:
        broker.stop()


@pytest.fixture
def broker(start_broker: StartBroker) -> BrokerProcess:
    return start_broker()
