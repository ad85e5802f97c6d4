"""Gaps and delays: a complaint if they are too long, unless a busy machine explains them."""

from __future__ import annotations

import pytest

from kafkaesque.lab.faults.runs.broker_faults import check_gaps, gap_goal
from kafkaesque.lab.faults.runs.disk_faults import added_ms


@pytest.mark.parametrize(
    ("gaps_ms", "own_stall_ms", "is_well"),
    [
        ([], 0, True),
        ([280, 700, 1_400], 5, True),
        ([280, 9_000], 5, True),
        ([280, 11_000], 5, False),
        # This process was stalled for a second, so the brokers were probably stalled as well.
        ([280, 11_000], 1_000, True),
    ],
)
def test_gap_that_no_busy_machine_explains_is_a_complaint(
    gaps_ms: list[int], own_stall_ms: int, is_well: bool
) -> None:
    assert (check_gaps(gaps_ms, own_stall_ms) == []) is is_well


def test_complaint_has_the_count_and_the_longest() -> None:
    (complaint,) = check_gaps([300, 12_000, 15_000], 0)
    assert "2 of 3 kills" in complaint
    assert "15000 ms" in complaint


@pytest.mark.parametrize(
    ("gaps_ms", "goal"),
    [([300] * 99 + [1_400], "met"), ([700] * 10, "MISSED"), ([300] * 9 + [1_600], "MISSED")],
)
def test_gap_goal_uses_both_percentiles(gaps_ms: list[int], goal: str) -> None:
    assert gap_goal(gaps_ms).startswith(goal)


@pytest.mark.parametrize(
    ("before", "waits", "added"),
    [
        ([5.0, 6.0, 7.0], [5.0, 8.0, 900.0], 2),
        ([5.0, 6.0, 7.0], [510.0, 700.0, 990.0], 694),
        # The machine is slow all the time; the follower adds nothing.
        ([300.0, 320.0, 330.0], [290.0, 310.0, 900.0], 0),
        ([5.0], [], 5_000),
    ],
)
def test_slow_follower_is_measured_by_the_increase_of_the_median(
    before: list[float], waits: list[float], added: int
) -> None:
    assert added_ms(before, waits) == added
