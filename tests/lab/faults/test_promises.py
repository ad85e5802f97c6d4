"""What runs of a cluster promise of times: plainly broken is a complaint, a busy machine is none."""

from __future__ import annotations

import pytest

from kafkaesque.lab.faults.runs.kill_leader import gap_goal, judge_gaps
from kafkaesque.lab.faults.runs.slow_disk import added_ms


@pytest.mark.parametrize(
    ("gaps_ms", "own_stall_ms", "is_well"),
    [
        ([], 0, True),
        ([280, 700, 1_400], 5, True),
        ([280, 9_000], 5, True),
        ([280, 11_000], 5, False),
        # Our own process was held up for a second: so was each of those that had to take over.
        ([280, 11_000], 1_000, True),
    ],
)
def test_gap_that_no_busy_machine_explains_is_a_complaint(
    gaps_ms: list[int], own_stall_ms: int, is_well: bool
) -> None:
    assert (judge_gaps(gaps_ms, own_stall_ms) == []) is is_well


def test_complaint_tells_how_many_and_the_longest() -> None:
    (complaint,) = judge_gaps([300, 12_000, 15_000], 0)
    assert "2 of 3 kills" in complaint
    assert "15000 ms" in complaint


@pytest.mark.parametrize(
    ("gaps_ms", "goal"),
    [([300] * 99 + [1_400], "met"), ([700] * 10, "MISSED"), ([300] * 9 + [1_600], "MISSED")],
)
def test_goal_of_the_gap_is_judged_by_both_percentiles(gaps_ms: list[int], goal: str) -> None:
    assert gap_goal(gaps_ms).startswith(goal)


@pytest.mark.parametrize(
    ("before", "waits", "added"),
    [
        ([5.0, 6.0, 7.0], [5.0, 8.0, 900.0], 2),
        ([5.0, 6.0, 7.0], [510.0, 700.0, 990.0], 694),
        # The machine is slow all the time, and the follower adds nothing to that.
        ([300.0, 320.0, 330.0], [290.0, 310.0, 900.0], 0),
        ([5.0], [], 5_000),
    ],
)
def test_slow_follower_is_judged_by_what_it_adds_to_the_median(
    before: list[float], waits: list[float], added: int
) -> None:
    assert added_ms(before, waits) == added
