"""Consumer lag: status rules, trend, time to catch up, time lag."""

from __future__ import annotations

from itertools import pairwise

import pytest

from kafkaesque.console.rules.lag import (
    WINDOW,
    GroupStatus,
    LagObservation,
    LagWindow,
    OffsetClock,
    catch_up_s,
    evaluate_lag,
    group_status,
    trend,
)


def window(*pairs: tuple[int, int]) -> list[LagObservation]:
    """Committed and end, three seconds apart; the first is repeated to fill the window."""
    padded = [pairs[0]] * (WINDOW - len(pairs)) + list(pairs)
    return [LagObservation(3.0 * number, *pair) for number, pair in enumerate(padded)]


GROWING = [(10 + n, 100 + 5 * n) for n in range(WINDOW)]
CATCHING_UP = [(10 + 9 * n, 100 + 5 * n) for n in range(WINDOW)]


@pytest.mark.parametrize(
    ("seen", "has_members", "expected"),
    [
        ([], True, GroupStatus.OK),
        ([], False, GroupStatus.IDLE),
        (window((100, 100)), True, GroupStatus.OK),
        (window((100, 100)), False, GroupStatus.IDLE),
        (window((40, 100)), False, GroupStatus.STOPPED),
        (window((40, 100)), True, GroupStatus.STALLED),
        (window(*GROWING), True, GroupStatus.SLOW),
        (window(*CATCHING_UP), True, GroupStatus.OK),
        (window((90, 100), (95, 100), (10, 100)), True, GroupStatus.REWOUND),
        (window((100, 100), (100, 110), (100, 120)), True, GroupStatus.OK),
        (window(*GROWING)[: WINDOW - 1], True, GroupStatus.OK),
    ],
)
def test_status_follows_the_rules(
    seen: list[LagObservation], has_members: bool, expected: GroupStatus
) -> None:
    assert evaluate_lag(seen, has_members) is expected


def test_the_status_of_a_group_is_its_worst_partition() -> None:
    assert (
        group_status([GroupStatus.OK, GroupStatus.STALLED, GroupStatus.SLOW]) is GroupStatus.STALLED
    )
    assert group_status([]) is GroupStatus.IDLE


def test_a_window_keeps_observations_apart_and_the_newest_last() -> None:
    seen = LagWindow()
    for tenth in range(200):
        seen.observe(tenth / 10, tenth, 1000)
    times = [item.at_s for item in seen.observations]
    assert times[-1] == 19.9
    assert all(b - a > 2.8 for a, b in pairwise(times[:-1]))


@pytest.mark.parametrize(
    ("points", "word"),
    [
        ([], "steady"),
        ([(0, 5), (1, 5), (2, 5)], "steady"),
        ([(0, 0), (1, 50), (2, 100)], "growing"),
        ([(0, 100), (1, 50), (2, 0)], "shrinking"),
        ([(0, 100_000), (1, 100_001), (2, 100_002)], "steady"),
    ],
)
def test_trend_is_growing_shrinking_or_steady(points: list[tuple[float, float]], word: str) -> None:
    assert trend(points).word == word


def test_time_to_catch_up_is_none_unless_the_lag_shrinks() -> None:
    assert catch_up_s(100, [(0, 200), (1, 150), (2, 100)]) == pytest.approx(2.0)
    assert catch_up_s(100, [(0, 50), (1, 75), (2, 100)]) is None
    assert catch_up_s(0, []) == 0.0


def test_time_lag_is_interpolated_between_observed_ends() -> None:
    clock = OffsetClock()
    clock.observe(100.0, 0)
    clock.observe(110.0, 1000)
    assert clock.lag_s(500, 120.0) == (pytest.approx(15.0), True)
    assert clock.lag_s(1000, 120.0) == (0.0, True)


def test_time_lag_before_the_first_observation_is_a_lower_bound() -> None:
    clock = OffsetClock()
    clock.observe(100.0, 700)
    clock.observe(110.0, 1000)
    assert clock.lag_s(10, 120.0) == (20.0, False)


def test_time_lag_of_an_idle_partition_grows_from_its_last_record() -> None:
    clock = OffsetClock()
    clock.observe(100.0, 10)
    clock.observe(101.0, 20)
    for second in range(102, 400):
        clock.observe(float(second), 20)
    assert clock.lag_s(10, 400.0) == (pytest.approx(300.0), True)


def test_the_clock_is_bounded_and_keeps_its_first_point() -> None:
    clock = OffsetClock()
    for second in range(10_000):
        clock.observe(float(second), second * 10)
    assert len(clock._points) <= OffsetClock.POINTS_MAX
    assert clock.lag_s(5, 10_000.0).seconds > 9_990
