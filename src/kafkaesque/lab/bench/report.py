"""The report of a benchmark: figures by case and peer, comparisons, settings."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from kafkaesque.lab.bench.figures import (
    Goal,
    GoalComparison,
    Rounds,
    Summary,
    paired_ratio,
    summaries,
)

_ORDER = {"ours": 0, "floor": 1, "kafka": 2}


@dataclass(slots=True)
class Case:
    """One workload and the figures of every peer in it, one mapping per round."""

    title: str
    rounds: dict[str, list[dict[str, float]]] = field(default_factory=dict)

    def add(self, peer: str, figures: Mapping[str, float]) -> None:
        self.rounds.setdefault(peer, []).append(dict(figures))

    @property
    def peers(self) -> list[str]:
        """The peers, ours first."""
        return sorted(self.rounds, key=lambda name: _ORDER.get(name, len(_ORDER)))

    def of(self, peer: str) -> Rounds:
        return self.rounds.get(peer, [])

    def summaries(self) -> dict[str, dict[str, Summary]]:
        return {peer: summaries(rounds) for peer, rounds in self.rounds.items()}


@dataclass(slots=True)
class BenchmarkReport:
    """The result of one run of one benchmark."""

    name: str
    settings: dict[str, object]
    machine: dict[str, object] = field(default_factory=dict)
    peers: dict[str, str] = field(default_factory=dict)
    cases: list[Case] = field(default_factory=list)
    comparisons: list[GoalComparison] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def case(self, title: str) -> Case:
        """The case with that title, created on first use."""
        for case in self.cases:
            if case.title == title:
                return case
        self.cases.append(Case(title))
        return self.cases[-1]

    def compare(self, case: Case, figure: str, goals: Mapping[str, Goal | None]) -> None:
        """Compare ours with each peer that ran: those of `goals` first, then those without a goal."""
        for peer in dict.fromkeys((*goals, *case.peers)):
            if peer == "ours":
                continue
            ratio = paired_ratio(case.of("ours"), case.of(peer), figure)
            if ratio is not None:
                self.comparisons.append(
                    GoalComparison(case.title, f"{figure} ours/{peer}", ratio, goals.get(peer))
                )

    def hold(self, case: Case, figure: str, goal: Goal) -> None:
        """Compare our own figure with a goal."""
        own = summaries(case.of("ours")).get(figure)
        if own is not None:
            self.comparisons.append(GoalComparison(case.title, f"{figure} ours", own, goal))

    def as_json(self) -> dict[str, object]:
        return {
            "name": self.name,
            "settings": self.settings,
            "machine": self.machine,
            "peers": self.peers,
            "cases": [_case_json(case) for case in self.cases],
            "comparisons": [comparison.as_json() for comparison in self.comparisons],
            "notes": self.notes,
        }


def _case_json(case: Case) -> dict[str, object]:
    return {
        "case": case.title,
        "figures": {
            peer: {figure: summary.as_json() for figure, summary in by_figure.items()}
            for peer, by_figure in case.summaries().items()
        },
    }


def figure_names(cases: Iterable[Case]) -> list[str]:
    """The names of all figures of these cases, in order of first appearance."""
    names = dict.fromkeys(
        figure
        for case in cases
        for rounds in case.rounds.values()
        for figures in rounds
        for figure in figures
    )
    return list(names)
