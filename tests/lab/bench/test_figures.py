"""Statistics of rounds: medians, spreads, paired ratios, goals."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkaesque.lab.bench.figures import (
    Goal,
    GoalComparison,
    Summary,
    latency_figures,
    paired_ratio,
    percentile,
    rounded,
    summaries,
)
from kafkaesque.model.errors import InvariantBroken


def test_summary_has_median_and_both_ends() -> None:
    summary = Summary((3.0, 1.0, 10.0))
    assert (summary.low, summary.median, summary.high) == (1.0, 3.0, 10.0)


def test_summary_of_nothing_is_refused() -> None:
    with pytest.raises(InvariantBroken):
        Summary(())


@pytest.mark.parametrize(
    ("goal", "value", "met"),
    [
        (Goal("at least", 0.7), 0.7, True),
        (Goal("at least", 0.7), 0.69, False),
        (Goal("at most", 2.0), 2.0, True),
        (Goal("at most", 2.0), 2.01, False),
    ],
)
def test_goal_includes_its_limit(goal: Goal, value: float, met: bool) -> None:
    assert goal.met_by(value) is met


def test_ratio_is_taken_round_by_round() -> None:
    # Both slow down by half in the second round, so the ratio stays the same.
    ours = [{"mb_per_s": 200.0}, {"mb_per_s": 100.0}]
    floor = [{"mb_per_s": 400.0}, {"mb_per_s": 200.0}]
    ratio = paired_ratio(ours, floor, "mb_per_s")
    assert ratio is not None
    assert ratio.values == (0.5, 0.5)


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        ([], [{"x": 1.0}]),
        ([{"x": 1.0}], []),
        ([{"y": 1.0}], [{"x": 1.0}]),
        ([{"x": 1.0}], [{"x": 0.0}]),
    ],
)
def test_ratio_without_a_common_figure_is_none(
    ours: list[dict[str, float]], theirs: list[dict[str, float]]
) -> None:
    assert paired_ratio(ours, theirs, "x") is None


def test_summaries_keep_figures_that_only_some_rounds_have() -> None:
    found = summaries([{"a": 1.0}, {"a": 3.0, "b": 5.0}])
    assert {name: one.values for name, one in found.items()} == {"a": (1.0, 3.0), "b": (5.0,)}


@pytest.mark.parametrize(
    ("share", "expected"), [(0.5, 50.0), (0.99, 99.0), (0.991, 100.0), (1.0, 100.0), (0.001, 1.0)]
)
def test_percentile_is_the_nearest_rank(share: float, expected: float) -> None:
    assert percentile([float(value) for value in range(1, 101)], share) == expected


@settings(deadline=None, max_examples=50)
@given(st.lists(st.integers(1, 10**9), min_size=1, max_size=200))
def test_latency_percentiles_ascend_and_are_values_that_occurred(latencies_ns: list[int]) -> None:
    figures = latency_figures(latencies_ns)
    ordered = [figures["p50_ms"], figures["p99_ms"], figures["p999_ms"]]
    assert ordered == sorted(ordered)
    assert all(round(value * 1e6) in latencies_ns for value in ordered)


def test_comparison_without_a_goal_is_neither_met_nor_missed() -> None:
    assert GoalComparison("case", "what", Summary((1.0,)), None).as_json()["met"] is None


def test_figures_are_rounded_to_four_digits() -> None:
    assert rounded(123456.789) == 123500.0
