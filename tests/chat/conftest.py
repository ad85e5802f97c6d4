from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from kafkaesque.testing import Broker


@pytest.fixture(scope="session")
def kafka() -> Iterator[str]:
    """Bootstrap servers: ours, or the Kafka that KAFKA names. A topic's state is shared by all tests
    of a session, so each test has users of its own."""
    if given := os.environ.get("KAFKA"):
        yield given
        return
    settings = {"group.min.session.timeout.ms": 1000}
    with Broker(settings=settings) as broker:
        yield broker.bootstrap_servers
