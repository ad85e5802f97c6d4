"""Statistics of repeated measurements, and goals for ratios. Plain values, no I/O."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Literal

from kafkaesque.model.errors import check

Bound = Literal["at least", "at most"]


@dataclass(frozen=True, slots=True)
class Summary:
    """One figure over all rounds. low <= median <= high."""

    values: tuple[float, ...]

    def __post_init__(self) -> None:
        check(bool(self.values), "a summary needs at least one value")

    @property
    def median(self) -> float:
        return median(self.values)

    @property
    def low(self) -> float:
        return min(self.values)

    @property
    def high(self) -> float:
        return max(self.values)

    def as_json(self) -> dict[str, object]:
        return {
            "median": rounded(self.median),
            "low": rounded(self.low),
            "high": rounded(self.high),
            "rounds": [rounded(value) for value in self.values],
        }


@dataclass(frozen=True, slots=True)
class Goal:
    """A goal of the project for one figure or ratio."""

    bound: Bound
    limit: float

    def met_by(self, value: float) -> bool:
        return value >= self.limit if self.bound == "at least" else value <= self.limit

    def __str__(self) -> str:
        return f"{self.bound} {self.limit:g}"


@dataclass(frozen=True, slots=True)
class GoalComparison:
    """A figure of one case compared with a goal: a ratio of two peers, or our own figure."""

    case: str
    what: str
    summary: Summary
    goal: Goal | None

    @property
    def met(self) -> bool | None:
        return None if self.goal is None else self.goal.met_by(self.summary.median)

    def as_json(self) -> dict[str, object]:
        return {
            "case": self.case,
            "what": self.what,
            **self.summary.as_json(),
            "goal": None if self.goal is None else str(self.goal),
            "met": self.met,
        }


Rounds = Sequence[Mapping[str, float]]
"""The figures of one peer in one case: one mapping per round."""


def summaries(rounds: Rounds) -> dict[str, Summary]:
    """Each figure over the rounds that have it, in order of first appearance."""
    names = dict.fromkeys(name for figures in rounds for name in figures)
    return {
        name: Summary(tuple(figures[name] for figures in rounds if name in figures))
        for name in names
    }


def paired_ratio(ours: Rounds, theirs: Rounds, figure: str) -> Summary | None:
    """Ratios taken round by round, because neighbours in time share the state of the machine.

    None if either side never measured `figure`, or theirs was always zero.
    """
    ratios = tuple(
        mine[figure] / other[figure]
        for mine, other in zip(ours, theirs, strict=False)
        if figure in mine and other.get(figure)
    )
    return Summary(ratios) if ratios else None


def percentile(sorted_values: Sequence[float], share: float) -> float:
    """The nearest-rank percentile (0 < share <= 1) of values that are already sorted."""
    check(bool(sorted_values) and 0.0 < share <= 1.0, "percentile of nothing, or outside (0, 1]")
    rank = -(-len(sorted_values) * share // 1)
    return sorted_values[int(rank) - 1]


def latency_figures(latencies_ns: Iterable[int]) -> dict[str, float]:
    """p50, p99 and p99.9 in milliseconds."""
    ordered = sorted(latencies_ns)
    return {
        "p50_ms": percentile(ordered, 0.5) / 1e6,
        "p99_ms": percentile(ordered, 0.99) / 1e6,
        "p999_ms": percentile(ordered, 0.999) / 1e6,
    }


def rounded(value: float) -> float:
    """Four significant digits: more would claim a precision that the measurement does not have."""
    return float(f"{value:.4g}")
