"""The verdict on a history: every anomaly found, and which of them are legal under its terms.

Pure: a history in, a verdict out. `anomalies` defines them; the other modules search for them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final

from kafkaesque.lab.faults.checks.anomalies import REORDERED, Anomaly, Name, legal_under
from kafkaesque.lab.faults.checks.contents import find_log_anomalies, find_read_anomalies
from kafkaesque.lab.faults.checks.figures import Figures, count_figures
from kafkaesque.lab.faults.checks.history import History, Key, Value
from kafkaesque.lab.faults.checks.observations import Observations
from kafkaesque.lab.faults.checks.ordering import find_poll_anomalies, find_send_anomalies
from kafkaesque.lab.faults.checks.transactions import find_transaction_anomalies

EXAMPLES_MAX: Final = 8
"""Kept for each anomaly; all are counted."""

CHECKS: Final[tuple[Callable[[Observations], Iterator[Anomaly]], ...]] = (
    find_log_anomalies,
    find_read_anomalies,
    find_poll_anomalies,
    find_send_anomalies,
    find_transaction_anomalies,
)


@dataclass(slots=True)
class AnomalyFinding:
    """One kind of anomaly in one history."""

    count: int = 0
    examples: list[Anomaly] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class HistoryVerdict:
    """The result of checking a history."""

    findings: dict[Name, AnomalyFinding]
    legal: frozenset[Name]
    figures: Figures
    lost: int
    """Distinct committed values that are missing: those of lost-write and unseen."""
    damaged_records: int
    """Acknowledged values at offsets that the run itself destroyed; not counted as lost."""

    @property
    def bad(self) -> dict[Name, AnomalyFinding]:
        return {name: one for name, one in self.findings.items() if name not in self.legal}

    @property
    def is_valid(self) -> bool:
        return not self.bad

    @property
    def duplicated(self) -> int:
        return self._count(Name.DUPLICATE)

    @property
    def reordered(self) -> int:
        return sum(self._count(name) for name in REORDERED)

    def _count(self, name: Name) -> int:
        return self.findings[name].count if name in self.findings else 0


def check_history(history: History) -> HistoryVerdict:
    """Run all checks. HistoryUnusable if one value was sent twice, which no broker can cause."""
    observed = Observations(history)
    findings: dict[Name, AnomalyFinding] = {}
    lost: set[tuple[Key | None, Value]] = set()
    for find in CHECKS:
        for anomaly in find(observed):
            finding = findings.setdefault(anomaly.name, AnomalyFinding())
            finding.count += 1
            if len(finding.examples) < EXAMPLES_MAX:
                finding.examples.append(anomaly)
            if anomaly.name in (Name.LOST_WRITE, Name.UNSEEN):
                lost.add((anomaly.key, anomaly.values[0]))
    return HistoryVerdict(
        findings=findings,
        legal=legal_under(history.terms),
        figures=count_figures(observed),
        lost=len(lost),
        damaged_records=_count_damaged(observed),
    )


def _count_damaged(observed: Observations) -> int:
    return sum(
        observed.log(one.key).value_at.get(offset) is not None
        for one in observed.terms.damaged
        for offset in range(one.first_offset, one.last_offset + 1)
    )
