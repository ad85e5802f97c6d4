"""`kafkaesque fault run`: which runs with which seeds, the table at their end, the exit code.

The runs are replaced by histories; `test_runs` tests the runs themselves.
"""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from tests.lab.faults.histories import Story, dense

from kafkaesque.cli import fault as command
from kafkaesque.lab.faults import campaign
from kafkaesque.lab.faults.catalog import NAMES
from kafkaesque.lab.faults.checks.checker import check_history
from kafkaesque.lab.faults.checks.history import History
from kafkaesque.lab.faults.fault_run import FaultRunOptions, Say
from kafkaesque.lab.faults.report import FaultReport
from kafkaesque.lab.faults.runner import NotPossible
from kafkaesque.lab.faults.workload import WorkloadFailed

CLEAN = Story().send(1, 0).send(2, 1).final({0: dense(1, 2)}).history
LOSSY = Story().send(1, 0).send(2, 1).send(3, 2).final({0: [(0, 1), (2, 3)]}).history


class Runs:
    """Replaces `run_by_name`: reports the history of that name or raises its error; clean if there is none."""

    def __init__(self) -> None:
        self.yields: dict[tuple[str, int], History | Exception] = {}
        self.performed: list[tuple[str, int, int | None, Path | None]] = []

    def __call__(
        self, name: str, options: FaultRunOptions, say: Say, keep: Path | None = None
    ) -> tuple[FaultReport, History]:
        self.performed.append((name, options.seed, options.rounds, keep))
        found = self.yields.get((name, options.seed), CLEAN)
        if isinstance(found, Exception):
            raise found
        return FaultReport(name, check_history(found), options), found


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> Iterator[Runs]:
    runs = Runs()
    monkeypatch.setattr(campaign, "run_by_name", runs)
    handler = signal.getsignal(signal.SIGTERM)
    yield runs
    signal.signal(signal.SIGTERM, handler)


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(command.fault, ["run", *arguments])


def table(result: Result) -> list[list[str]]:
    """The cells from the title row on."""
    lines = result.stdout.splitlines()
    (start,) = (number for number, line in enumerate(lines) if line.startswith("RUN "))
    return [line.split() for line in lines[start:]]


def test_one_run_ends_with_its_verdict_and_without_a_table(runs: Runs) -> None:
    result = invoke("pause-leader")
    assert result.exit_code == 0
    assert "RUN" not in result.stdout
    assert "0 lost, 0 duplicated, 0 reordered, 0 anomalies, longest gap" in result.stdout
    assert result.stdout.splitlines()[-1].strip() == "passed"


def test_repeated_run_takes_the_seeds_that_follow_and_one_failure_fails_all(runs: Runs) -> None:
    runs.yields["power-cut", 8] = LOSSY
    result = invoke("power-cut", "--repeat", "3", "--seed", "7", "--keep", "kept")
    assert result.exit_code == 1
    assert runs.performed == [
        ("power-cut", seed, None, Path(f"kept/seed-{seed}")) for seed in (7, 8, 9)
    ]
    assert table(result) == [
        ["RUN", "SEED", "ACKNOWLEDGED", "LOST", "DUPLICATED", "REORDERED", "ANOMALIES",
         "LONGEST-GAP-MS", "PASSED"],
        ["power-cut", "7", "2", "0", "0", "0", "0", "1", "yes"],
        ["power-cut", "8", "3", "1", "0", "0", "4", "1", "NO"],
        ["power-cut", "9", "2", "0", "0", "0", "0", "1", "yes"],
        ["total", "-", "7", "1", "0", "0", "4", "1", "2", "of", "3"],
    ]  # fmt: skip


def test_several_runs_are_summed_for_a_script(runs: Runs) -> None:
    result = invoke("kill-leader", "power-cut", "--json")
    assert result.exit_code == 0
    # kill-leader has 50 rounds by default when it is started by name.
    assert [one[:3] for one in runs.performed] == [("kill-leader", 1, 50), ("power-cut", 1, None)]
    answer = json.loads(result.stdout)
    assert (answer["passed"], answer["acknowledged"], answer["anomalies"]) == (True, 4, 0)
    assert [row["name"] for row in answer["runs"]] == ["kill-leader", "power-cut"]
    assert "2 of 2" in result.stderr


def test_impossible_run_is_skipped_by_all_and_fails_by_name(
    runs: Runs,
) -> None:
    for seed in (1, 2):
        runs.yields["disk-full", seed] = NotPossible("it needs root")
    result = invoke("all", "--repeat", "2")
    assert result.exit_code == 0
    assert len(runs.performed) == 2 * len(NAMES) - 1
    rows = table(result)
    assert ["disk-full", "1", *"------", "not", "possible", "here"] in rows
    possible = 2 * (len(NAMES) - 1)
    assert rows[-1][-3:] == [str(possible), "of", str(possible)]
    named = invoke("kill-leader", "disk-full")
    assert named.exit_code == 1
    assert "it needs root" in named.stderr


def test_run_that_could_not_be_finished_did_not_pass(runs: Runs) -> None:
    runs.yields["kill-all", 2] = WorkloadFailed("nobody answers")
    result = invoke("kill-all", "--repeat", "2")
    assert result.exit_code == 1
    assert table(result)[-1][-3:] == ["1", "of", "2"]
    assert "NOT FINISHED" in result.stdout
    assert "nobody answers" in result.stderr
    answer = json.loads(invoke("kill-all", "--repeat", "2", "--json").stdout)
    assert answer["passed"] is False
    assert answer["unfinished"] == ["kill-all could not be finished: nobody answers"]
