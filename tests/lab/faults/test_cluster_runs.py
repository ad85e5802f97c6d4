"""A few short runs against a real cluster; `make faults` performs the others."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafkaesque.lab.faults.fault_run import FaultRunOptions
from kafkaesque.lab.faults.report import FaultReport
from kafkaesque.lab.faults.runner import run_by_name

pytestmark = pytest.mark.story


def perform(name: str, keep: Path, amount: int | None = None) -> FaultReport:
    progress: list[str] = []
    options = FaultRunOptions(records_per_s=300, rounds=1, amount=amount)
    report, history = run_by_name(name, options, progress.append, keep)
    assert report.passed, "\n".join([*progress, *report.lines(history)])
    assert report.verdict.lost == report.verdict.duplicated == report.verdict.reordered == 0
    assert report.verdict.figures.acknowledged > 300
    assert int(report.notes["watermarks_sampled"]) > 0
    assert int(report.notes["batches_compared"]) > 0
    return report


def test_leader_killed_under_load_costs_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    report = perform("kill-leader", tmp_path)
    assert report.notes["kills"] == report.faults == 1
    assert (tmp_path / "kill-leader" / "broker-0.log").exists()


def test_leader_that_resumes_after_an_election_serves_nothing_stale(tmp_path: Path) -> None:
    assert perform("pause-leader", tmp_path).notes["pauses"] == 1


def test_rolling_restart_shows_no_application_an_error(tmp_path: Path) -> None:
    report = perform("rolling-restart", tmp_path)
    assert report.notes["restarts"] == 3
    assert report.notes["application_errors_send"] == 0
    assert report.notes["application_errors_poll"] == 0


def test_transactional_copy_equals_the_original_despite_kills(tmp_path: Path) -> None:
    notes = perform("transactions-copy", tmp_path, amount=12_000).notes
    assert (notes["copied"], notes["missing"], notes["duplicate"]) == (12_000, 0, 0)


def test_late_requests_tear_no_transaction(tmp_path: Path) -> None:
    notes = perform("transactions-delayed", tmp_path, amount=40).notes
    assert int(notes["arrived_late"]) >= 20
    assert int(notes["committed"]) > 0
