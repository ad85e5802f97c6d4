"""The back end's tests on a real Apache Kafka, with no change but bootstrap.servers."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import pytest
from tests.chat import test_backend
from tests.gateway.logs import Place

from kafkaesque.testing.apache_kafka import ApacheKafka
from kafkaesque.testing.maven import JavaUnavailable

pytestmark = [
    pytest.mark.story,
    pytest.mark.timeout(600),
]


@pytest.fixture(scope="module")
def apache_kafka() -> Iterator[str]:
    settings = {"group.initial.rebalance.delay.ms": "0"}
    with contextlib.ExitStack() as stack:
        try:
            running = stack.enter_context(ApacheKafka(settings=settings, heap="512m"))
        except JavaUnavailable as error:
            pytest.skip(f"no Apache Kafka to compare with: {error}")
        yield running.bootstrap_servers


@pytest.mark.parametrize(
    "story",
    [
        test_backend.test_accounts_messages_receipts_and_deletion_on_a_real_log,
        test_backend.test_successor_restores_everything_and_repeats_have_no_effect,
        test_backend.test_two_back_ends_share_the_partitions_and_one_takes_over,
    ],
)
def test_back_end_behaves_the_same_on_apache_kafka(
    apache_kafka: str, story: Callable[[Place], None]
) -> None:
    story(Place(apache_kafka))
