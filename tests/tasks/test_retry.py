from __future__ import annotations

import pytest

from kafkaesque.tasks.rules.retry import Retry, tier_for, waits_until_ms


def test_delays_grow_by_the_factor_up_to_the_maximum() -> None:
    retry = Retry(attempts=9, first_s=1, factor=4, most_s=60, jitter=False)
    assert [retry.delay_s(attempt, 0.9) for attempt in (1, 2, 3, 4, 5, 500)] == [
        1,
        4,
        16,
        60,
        60,
        60,
    ]


def test_jitter_shortens_by_up_to_half() -> None:
    retry = Retry(first_s=8, factor=1, most_s=8)
    assert [retry.delay_s(1, chance) for chance in (0.0, 0.5, 1.0)] == [8, 6, 4]


def test_only_listed_exceptions_are_retried() -> None:
    retry = Retry(on=(OSError, ValueError), never_on=(FileNotFoundError,))
    assert retry.covers(ConnectionError())
    assert not retry.covers(FileNotFoundError())
    assert not retry.covers(KeyError())


@pytest.mark.parametrize(
    ("delay_ms", "tier"),
    [(0, "5s"), (5000, "5s"), (5001, "1m"), (60_001, "10m"), (3_600_000, "1h"), (3_600_001, None)],
)
def test_each_delay_has_its_tier_and_long_ones_are_timers(delay_ms: int, tier: str | None) -> None:
    assert tier_for(delay_ms) == tier


def test_a_record_of_a_clock_that_ran_ahead_waits_no_longer_than_its_tier() -> None:
    assert waits_until_ms("5s", 1_000_000 + 86_400_000, 1_000_000) == 1_005_000
    assert waits_until_ms("5s", 1_002_000, 1_000_000) == 1_002_000


@pytest.mark.parametrize(
    "wrong", [{"attempts": 0}, {"first_s": -1}, {"factor": 0.5}, {"most_s": 0.1}]
)
def test_an_invalid_policy_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=r"at least 1|shrink"):
        Retry(**wrong)  # type: ignore[arg-type]
