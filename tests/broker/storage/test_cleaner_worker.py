"""The rate limiter of the cleaner, on a virtual clock."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkaesque.broker.storage import cleaner_worker
from kafkaesque.broker.storage.cleaner_worker import RateLimiter

RATE = 1000.0
SLACK_S = 0.01
"""The limiter skips shorter sleeps, so it may be ahead by this much."""


class VirtualTime:
    def __init__(self) -> None:
        self.now = 100.0
        self.slept = 0.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        assert seconds > 0
        self.now += seconds
        self.slept += seconds


@pytest.fixture
def time(monkeypatch: pytest.MonkeyPatch) -> VirtualTime:
    virtual = VirtualTime()
    monkeypatch.setattr(cleaner_worker, "time", virtual)
    return virtual


def test_fast_work_is_slowed_to_the_rate(time: VirtualTime) -> None:
    limiter = RateLimiter(RATE)
    for _ in range(100):
        limiter(50)
    assert time.slept == pytest.approx(100 * 50 / RATE, abs=SLACK_S)


def test_slow_work_is_not_slowed_further(time: VirtualTime) -> None:
    limiter = RateLimiter(RATE)
    for _ in range(100):
        time.now += 0.06
        limiter(50)
    assert time.slept == 0.0


def test_idle_time_is_not_credited(time: VirtualTime) -> None:
    limiter = RateLimiter(RATE)
    limiter(1000)
    time.now += 3600
    limiter(1)
    before = time.slept
    limiter(1000)
    limiter(1000)
    assert time.slept - before >= 1.0


@settings(deadline=None, max_examples=100)
@given(st.lists(st.tuples(st.integers(0, 5000), st.floats(0, 2)), max_size=50))
def test_rate_is_never_exceeded_and_sleeps_are_never_longer_than_needed(
    steps: list[tuple[int, float]],
) -> None:
    with pytest.MonkeyPatch.context() as monkeypatch:
        time = VirtualTime()
        monkeypatch.setattr(cleaner_worker, "time", time)
        limiter, handled, worked, began = RateLimiter(RATE), 0, 0.0, time.now
        for size_bytes, seconds in steps:
            time.now += seconds
            limiter(size_bytes)
            handled += size_bytes
            worked += seconds
            passed = time.now - began
            assert handled / RATE <= passed + SLACK_S + 1e-6
            assert passed <= worked + handled / RATE + 1e-6
