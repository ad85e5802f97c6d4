"""Reports of runs, as JSON and as text."""

from __future__ import annotations

import json

from tests.lab.faults.histories import Story, dense, random_clean

from kafkaesque.lab.faults.checks.checker import check_history
from kafkaesque.lab.faults.checks.figures import Fault
from kafkaesque.lab.faults.checks.history import DestroyedRange, History, OperationOutcome
from kafkaesque.lab.faults.fault_run import FaultRunOptions, RunResult
from kafkaesque.lab.faults.report import FaultReport, make_report


def report_of(history: History, **more: object) -> FaultReport:
    return FaultReport("by-hand", check_history(history), **more)  # type: ignore[arg-type]


LOSSY = Story().send(1, 0).send(2, 1).send(3, 2).final({0: [(0, 1), (2, 3)]}).history


def test_json_has_the_figures_that_scripts_rely_on() -> None:
    answer = json.loads(json.dumps(report_of(LOSSY).as_json()))
    wanted = {"name": "by-hand", "acknowledged": 3, "lost": 1, "duplicated": 0, "reordered": 0}
    assert {name: answer[name] for name in wanted} == wanted
    assert answer["anomalies"] == sum(answer["anomaly_counts"].values()) > 0
    assert set(answer["anomaly_counts"]) == {
        "lost-write", "unseen", "offset-hole", "int-poll-skip",
    }  # fmt: skip
    assert answer["passed"] is False
    assert answer["longest_gap_ms"] >= 0


def test_clean_run_passes() -> None:
    report = report_of(random_clean(1))
    assert report.passed
    assert report.as_json()["anomalies"] == 0
    assert list(report.lines())[-1].strip() == "passed"


def test_first_line_of_the_text_has_every_figure_of_the_verdict() -> None:
    assert next(report_of(LOSSY).lines()) == (
        "by-hand: 3 acknowledged, 1 lost, 0 duplicated, 0 reordered, 4 anomalies, longest gap 1 ms"
    )
    assert " 0 anomalies, " in next(report_of(random_clean(1)).lines())


def test_text_has_the_example_and_its_operations() -> None:
    text = "\n".join(report_of(LOSSY).lines(LOSSY))
    assert "ANOMALY lost-write: 1" in text
    assert "key 0: value 2 at offset 1 was never read" in text
    assert "operation 1, process 0, send ok" in text
    assert "sent 2 at 1" in text
    assert text.endswith("FAILED")


def test_legal_anomaly_is_reported_and_does_not_fail_the_run() -> None:
    story = Story().send(1, 0).subscribe(0).poll({0: dense(1)}).poll({0: dense(1)})
    report = report_of(story.final({0: dense(1)}).history)
    assert "legal subscribed-nonmonotonic-poll: 1" in "\n".join(report.lines())
    assert report.as_json()["legal_anomaly_counts"] == {"subscribed-nonmonotonic-poll": 1}
    assert report.as_json()["reordered"] == 0
    assert report.passed


def test_complaint_fails_a_run_without_anomaly() -> None:
    report = report_of(random_clean(1), complaints=["it smells"])
    assert not report.passed
    assert "COMPLAINT it smells" in "\n".join(report.lines())


def test_control_that_loses_nothing_fails_the_run() -> None:
    clean, lossy = report_of(random_clean(1)), report_of(LOSSY)
    assert report_of(random_clean(2), control=lossy).passed
    cannot_fail = report_of(random_clean(2), control=clean)
    assert not cannot_fail.passed
    assert cannot_fail.as_json()["complaints"] == ["the control lost nothing: this run cannot fail"]
    stopped = report_of(random_clean(1))
    stopped.complaints.append("it does not get well again: the brokers stopped")
    assert report_of(random_clean(2), control=stopped).passed, "that shows the fault as well"


def test_damaged_records_are_reported() -> None:
    story = Story(damaged=(DestroyedRange(0, 1, 1),)).send(1, 0).send(2, 1).final({0: dense(1)})
    report = report_of(story.history)
    assert report.passed
    assert "1 record(s) were in batches that the run destroyed" in "\n".join(report.lines())


def test_report_of_a_run_has_its_gaps_and_settings() -> None:
    story = Story().send(1, 0).send(2, 1).send(3, None, outcome=OperationOutcome.INFO).send(4, 2)
    history = story.final({0: dense(1, 2, 4)}).history
    faults = [Fault(1600, frozenset({0}))]
    outcome = RunResult(history, check_history(history), faults, {"kills": 1})
    answer = make_report("kill-broker", FaultRunOptions(3.0, 10, 7), outcome).as_json()
    assert answer["gap_ms_p50"] == answer["gap_ms_p99"] == answer["longest_gap_ms"] == 2
    assert answer["settings"] == {"seconds": 3.0, "records_per_s": 10, "seed": 7, "rounds": None}
    assert answer["notes"] == {"kills": 1}
