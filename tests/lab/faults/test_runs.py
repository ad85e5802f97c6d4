"""Runs by name: all are listed and can be started, and one of them is performed for real."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.lab.faults.histories import Story, random_clean

from kafkaesque.cli.fault import fault
from kafkaesque.lab.faults.catalog import NAMES, load_run
from kafkaesque.lab.faults.fault_run import FaultRunOptions
from kafkaesque.lab.faults.runner import load_history, run_by_name, save_history


@pytest.mark.parametrize("name", NAMES)
def test_every_run_has_a_purpose_and_a_promise(name: str) -> None:
    run = load_run(name)
    assert run.purpose
    assert run.promise


def test_list_names_every_run() -> None:
    outcome = CliRunner().invoke(fault, ["list", "--json"])
    assert outcome.exit_code == 0
    assert [row["name"] for row in json.loads(outcome.stdout)] == list(NAMES)
    assert "must hold" in CliRunner().invoke(fault, ["list"]).stdout


def test_unknown_run_is_a_usage_error() -> None:
    assert CliRunner().invoke(fault, ["run", "meteor"]).exit_code == 2


def test_kept_history_is_checked_again(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    save_history(random_clean(3), path)
    outcome = CliRunner().invoke(fault, ["check", str(path), "--json"])
    assert outcome.exit_code == 0
    answer = json.loads(outcome.stdout.splitlines()[-1])
    assert (answer["passed"], answer["anomalies"]) == (True, 0)


def test_bad_history_ends_with_exit_code_1(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    save_history(Story().send(1, 0).send(2, 0).final({0: [(0, 2)]}).history, path)
    outcome = CliRunner().invoke(fault, ["check", str(path)])
    assert outcome.exit_code == 1
    assert "ANOMALY inconsistent-offsets: 1" in outcome.stdout


def test_malformed_history_is_refused_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    path.write_text("{}\n")
    outcome = CliRunner().invoke(fault, ["check", str(path)])
    assert outcome.exit_code == 1
    assert "line 1" in outcome.stderr


@pytest.mark.story
def test_broker_killed_repeatedly_loses_repeats_and_reorders_nothing(tmp_path: Path) -> None:
    progress: list[str] = []
    report, history = run_by_name(
        "kill-broker", FaultRunOptions(seconds=3.0, records_per_s=300), progress.append, tmp_path
    )
    assert report.verdict.bad == {}, "\n".join(report.lines(history))
    assert report.as_json()["lost"] == report.as_json()["duplicated"] == 0
    assert report.verdict.figures.acknowledged > 300
    assert report.notes["kills"] == report.faults >= 1
    kept = tmp_path / "kill-broker"
    assert "not clean" in (kept / "broker.log").read_text()
    assert load_history(kept / "history.jsonl") == history
