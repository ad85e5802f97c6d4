"""Several fault runs, or one run with several seeds: each execution and the sums of all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kafkaesque.lab.faults.fault_run import FaultRunOptions, Say
from kafkaesque.lab.faults.report import FaultReport
from kafkaesque.lab.faults.runner import NotPossible, run_by_name
from kafkaesque.lab.faults.shims import ShimFailed
from kafkaesque.lab.faults.workload import WorkloadFailed
from kafkaesque.lab.harness.namespaces import NetworkFailed
from kafkaesque.testing.broker_process import BrokerNotReady

SUMMED: Final = ("acknowledged", "lost", "duplicated", "reordered", "anomalies")


@dataclass(frozen=True, slots=True)
class RunExecution:
    """One execution of a run: its report, or why it has none."""

    name: str
    seed: int
    report: FaultReport | None = None
    lines: Sequence[str] = ()
    """The report for people."""
    trouble: str = ""
    is_impossible: bool = False
    """This machine does not support the run."""

    @property
    def verdict(self) -> str:
        if self.report is None:
            return "not possible here" if self.is_impossible else "NOT FINISHED"
        return "yes" if self.report.passed else "NO"


def execute(name: str, options: FaultRunOptions, say: Say, keep: Path | None) -> RunExecution:
    """Performs a run; a run that cannot start or finish is an execution without a report."""
    try:
        report, history = run_by_name(name, options, say, keep)
    except NotPossible as error:
        return RunExecution(name, options.seed, trouble=str(error), is_impossible=True)
    except (WorkloadFailed, BrokerNotReady, ShimFailed, NetworkFailed) as error:
        trouble = f"{name} could not be finished: {error}"
        return RunExecution(name, options.seed, trouble=trouble)
    return RunExecution(name, options.seed, report, list(report.lines(history)))


class Campaign:
    """The executions of a campaign."""

    def __init__(self) -> None:
        self.executions: list[RunExecution] = []

    @property
    def reports(self) -> list[FaultReport]:
        return [one.report for one in self.executions if one.report is not None]

    @property
    def unfinished(self) -> list[str]:
        """Why executions that this machine supports have no report."""
        return [one.trouble for one in self.executions if one.trouble and not one.is_impossible]

    @property
    def impossible(self) -> list[str]:
        return [one.trouble for one in self.executions if one.is_impossible]

    @property
    def passed(self) -> bool:
        """Whether every report passed and every supported run finished."""
        return all(report.passed for report in self.reports) and not self.unfinished

    def totals(self) -> dict[str, int]:
        """The sums, and the longest gap."""
        rows: Sequence[Mapping[str, object]] = [report.as_json() for report in self.reports]
        totals = {figure: sum(int(str(row[figure])) for row in rows) for figure in SUMMED}
        longest = max((int(str(row["longest_gap_ms"])) for row in rows), default=0)
        return {**totals, "longest_gap_ms": longest}

    def summary(self, name: str) -> dict[str, object]:
        """The JSON fields of `fault run --json` for several executions."""
        return {
            "name": name,
            "passed": self.passed,
            **self.totals(),
            "unfinished": self.unfinished,
            "not_possible": self.impossible,
            "runs": [report.as_json() for report in self.reports],
        }
