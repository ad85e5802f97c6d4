"""The report of a run: JSON for scripts, a few lines for people. No I/O."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from kafkaesque.lab.faults.checks.anomalies import MEANINGS, Anomaly, Name
from kafkaesque.lab.faults.checks.checker import AnomalyFinding, HistoryVerdict
from kafkaesque.lab.faults.checks.figures import gaps_of_faults, percentile
from kafkaesque.lab.faults.checks.history import ClientOperation, History, Polled
from kafkaesque.lab.faults.fault_run import FaultRunOptions, RunResult

_ROWS_SHOWN_MAX: Final = 6
_OPERATIONS_SHOWN_MAX: Final = 3


@dataclass(frozen=True, slots=True)
class FaultReport:
    """The result of one run."""

    name: str
    verdict: HistoryVerdict
    options: FaultRunOptions | None = None
    faults: int = 0
    gaps_ms: list[int] = field(default_factory=list)
    notes: dict[str, int | float | str] = field(default_factory=dict)
    complaints: list[str] = field(default_factory=list)
    control: FaultReport | None = None
    """The same fault under settings that permit loss."""

    @property
    def passed(self) -> bool:
        return self.verdict.is_valid and not self.all_complaints

    @property
    def all_complaints(self) -> list[str]:
        control = self.control
        # A broker that stops because its data is gone proves as well that the fault works.
        if control is not None and control.verdict.lost == 0 and not control.complaints:
            return [*self.complaints, "the control lost nothing: this run cannot fail"]
        return self.complaints

    @property
    def anomalies(self) -> int:
        """All findings that are not legal."""
        return sum(finding.count for finding in self.verdict.bad.values())

    def as_json(self) -> dict[str, object]:
        figures = self.verdict.figures
        answer: dict[str, object] = {
            "name": self.name,
            "passed": self.passed,
            "acknowledged": figures.acknowledged,
            "lost": self.verdict.lost,
            "duplicated": self.verdict.duplicated,
            "reordered": self.verdict.reordered,
            "anomalies": self.anomalies,
            "longest_gap_ms": figures.longest_gap_ms,
            "anomaly_counts": _counts(self.verdict.bad),
            "legal_anomaly_counts": _counts(
                {n: f for n, f in self.verdict.findings.items() if n in self.verdict.legal}
            ),
            "complaints": self.all_complaints,
            "unknown": figures.unknown,
            "failed": figures.failed,
            "polled": figures.polled,
            "damaged_records": self.verdict.damaged_records,
            "faults": self.faults,
            "gap_ms_p50": int(percentile(self.gaps_ms, 0.5)),
            "gap_ms_p99": int(percentile(self.gaps_ms, 0.99)),
            "gap_ms_max": max(self.gaps_ms, default=0),
            "realtime_lag_ms": {
                "p50": round(figures.lag.p50_ms, 1),
                "p99": round(figures.lag.p99_ms, 1),
                "worst": round(figures.lag.worst_ms, 1),
            },
            "consumed_times": figures.consumed_times,
            "notes": self.notes,
        }
        if self.options is not None:
            answer["settings"] = {
                "seconds": self.options.seconds,
                "records_per_s": self.options.records_per_s,
                "seed": self.options.seed,
                "rounds": self.options.rounds,
            }
        if self.control is not None:
            answer["control"] = {
                "acknowledged": self.control.verdict.figures.acknowledged,
                "lost": self.control.verdict.lost,
                "anomaly_counts": _counts(self.control.verdict.bad),
            }
        return answer

    def lines(self, history: History | None = None) -> Iterator[str]:
        """The report in words; with the history, also the operations of each anomaly."""
        figures, verdict = self.verdict.figures, self.verdict
        yield (
            f"{self.name}: {figures.acknowledged} acknowledged, {verdict.lost} lost, "
            f"{verdict.duplicated} duplicated, {verdict.reordered} reordered, "
            f"{self.anomalies} anomalies, longest gap {figures.longest_gap_ms} ms"
        )
        yield (
            f"  {figures.unknown} with unknown outcome, {figures.failed} refused; "
            f"{figures.polled} read"
            + (f"; {self.faults} fault(s)" if self.options is not None else "")
            + "".join(f", {name} {value}" for name, value in self.notes.items())
        )
        if self.gaps_ms:
            yield (
                f"  gap after a fault: p50 {percentile(self.gaps_ms, 0.5):.0f} ms, "
                f"p99 {percentile(self.gaps_ms, 0.99):.0f} ms, max {max(self.gaps_ms)} ms"
            )
        if verdict.damaged_records:
            yield f"  {verdict.damaged_records} record(s) were in batches that the run destroyed"
        if self.control is not None:
            control = self.control.verdict
            yield (
                f"  control, where loss is permitted: {control.lost} of "
                f"{control.figures.acknowledged} lost"
            )
        for name, finding in verdict.findings.items():
            label = "legal" if name in verdict.legal else "ANOMALY"
            yield f"  {label} {name}: {finding.count} ({MEANINGS[name]})"
            if name not in verdict.legal:
                for example in finding.examples:
                    yield from _example_lines(example, history)
        for complaint in self.all_complaints:
            yield f"  COMPLAINT {complaint}"
        yield f"  {'passed' if self.passed else 'FAILED'}"


def make_report(
    name: str, options: FaultRunOptions, outcome: RunResult, control: FaultReport | None = None
) -> FaultReport:
    sending = [operation for operation in outcome.history.operations if operation.sends]
    return FaultReport(
        name=name,
        verdict=outcome.verdict,
        options=options,
        faults=len(outcome.faults),
        gaps_ms=gaps_of_faults(sending, outcome.faults),
        notes=outcome.notes,
        complaints=outcome.complaints,
        control=control,
    )


def _counts(findings: Mapping[Name, AnomalyFinding]) -> dict[str, int]:
    return {str(name): finding.count for name, finding in findings.items()}


def _example_lines(example: Anomaly, history: History | None) -> Iterator[str]:
    place = "" if example.key is None else f"key {example.key}: "
    yield f"    {place}{example.text}"
    if history is None:
        return
    by_index = {operation.index: operation for operation in history.operations}
    for index in example.operations[:_OPERATIONS_SHOWN_MAX]:
        yield f"      {describe(by_index[index], example.key)}"


def describe(operation: ClientOperation, key: int | None) -> str:
    """One operation in one line, with its records of `key`."""
    parts = []
    for one in operation.micro:
        if isinstance(one, Polled):
            rows = one.records.get(key, []) if key is not None else []
            shown = ", ".join(f"{offset}:{value}" for offset, value in rows[:_ROWS_SHOWN_MAX])
            more = f", ... {len(rows)} in all" if len(rows) > _ROWS_SHOWN_MAX else ""
            parts.append(f"polled [{shown}{more}]")
        elif key is None or one.key == key:
            parts.append(f"sent {one.value} at {one.offset}")
    times = f"{operation.invoked_us / 1e6:.3f} to {operation.completed_us / 1e6:.3f} s"
    return (
        f"operation {operation.index}, process {operation.process}, {operation.f} "
        f"{operation.outcome}, {times}: {'; '.join(parts)}"
    )
