"""The counters of requests."""

from __future__ import annotations

import pytest

from kafkaesque.broker.server.stats import (
    LATENCY_BUCKETS_SECONDS,
    ApiStats,
    BrokerStats,
    LatencyHistogram,
)


@pytest.mark.parametrize("seconds", [0.0, *LATENCY_BUCKETS_SECONDS, 0.003, 11.0])
def test_answered_request_is_observed_in_the_bucket_of_its_latency(seconds: float) -> None:
    stats, expected = ApiStats(), LatencyHistogram()
    stats.answered(10, 20, seconds)
    expected.observe(seconds)
    assert (stats.received_bytes, stats.sent_bytes) == (10, 20)
    assert stats.latency.counts == expected.counts
    assert stats.latency.sum_seconds == expected.sum_seconds == seconds


def test_every_api_has_separate_counts() -> None:
    stats = BrokerStats()
    stats.api(0).answered(1, 2, 0.5)
    assert stats.api(0) is stats.api(0)
    assert stats.api(1).received_bytes == 0
