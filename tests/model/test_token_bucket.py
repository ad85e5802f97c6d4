"""A token bucket gives a burst and then the rate."""

from __future__ import annotations

import pytest

from kafkaesque.model.token_bucket import TokenBucket


def test_take_is_refused_until_there_is_a_token() -> None:
    bucket = TokenBucket(per_second=10, burst=3, now_s=0.0)
    assert [bucket.take(0.0) for _ in range(3)] == [0.0, 0.0, 0.0]
    assert bucket.take(0.0) == pytest.approx(0.1)
    assert bucket.take(0.1) == 0.0
    assert bucket.take(0.1) > 0


def test_idle_bucket_holds_no_more_than_the_burst() -> None:
    bucket = TokenBucket(per_second=10, burst=3, now_s=0.0)
    assert [bucket.take(100.0) for _ in range(3)] == [0.0, 0.0, 0.0]
    assert bucket.take(100.0) > 0


def test_take_next_makes_each_caller_wait_for_its_own_token() -> None:
    bucket = TokenBucket(per_second=10, burst=2, now_s=0.0)
    assert [bucket.take_next(0.0) for _ in range(4)] == pytest.approx([0, 0, 0.1, 0.2])
    assert bucket.take_next(10.0) == 0
