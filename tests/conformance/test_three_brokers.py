"""Transactions of real clients on three brokers, in every run; `KAFKA=cluster` runs all tests there."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from tests.conformance.clients import Client
from tests.conformance.conftest import SETTINGS
from tests.conformance.test_transactions import (  # noqa: F401 - collected here again
    opened,
    test_committed_transactions_are_read_and_aborted_ones_are_not,
    test_consumed_offsets_are_committed_with_the_results,
)

from kafkaesque.testing import Cluster

pytestmark = [
    pytest.mark.skipif(
        bool(os.environ.get("KAFKA")), reason="brings brokers of its own: run without KAFKA"
    ),
    pytest.mark.parametrize("client", ["confluent-kafka", "aiokafka", "java-4.3.0"], indirect=True),
]


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    with Cluster(3, settings=SETTINGS) as cluster:
        yield cluster.bootstrap_servers


@pytest.fixture(scope="module")
def open_clients(bootstrap: str) -> Iterator[dict[str, Client]]:
    clients: dict[str, Client] = {}
    yield clients
    for one in clients.values():
        one.close()
