"""Short versions of the pipeline's fault runs; `kafkaesque fault run` runs them in full."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip(
    "pyspark", reason="pyspark is missing: make setup, or pip install kafkaesque-platform[spark]"
)

from kafkaesque.lab.faults.fault_run import FaultRunOptions
from kafkaesque.lab.faults.report import FaultReport
from kafkaesque.lab.faults.runner import run_by_name

pytestmark = [pytest.mark.slow_spark, pytest.mark.timeout(3600)]


def perform(name: str, keep: Path, rounds: int) -> FaultReport:
    said: list[str] = []
    options = FaultRunOptions(records_per_s=100, rounds=rounds)
    report, history = run_by_name(name, options, said.append, keep)
    assert report.passed, "\n".join([*said, *report.lines(history)])
    assert report.verdict.lost == report.verdict.duplicated == 0
    return report


def test_driver_killed_at_two_points_leaves_every_sink_complete(tmp_path: Path) -> None:
    report = perform("pipeline-driver-kill", tmp_path, rounds=2)
    assert report.notes["named_kills"] == 2
    assert (report.notes["rows_missing"], report.notes["rows_doubled"]) == (0, 0)
    assert (tmp_path / "pipeline-driver-kill" / "driver-planned.log").exists()


def test_broker_shut_down_in_mid_stream_loses_no_post(tmp_path: Path) -> None:
    report = perform("posts-broker-down", tmp_path, rounds=1)
    figures = ("posts_lost", "posts_doubled", "posts_lost_in_table", "posts_doubled_in_table")
    assert [report.notes[name] for name in figures] == [0, 0, 0, 0]
