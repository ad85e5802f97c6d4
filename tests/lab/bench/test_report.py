"""Benchmark reports: comparisons of peers, and the JSON form."""

from __future__ import annotations

import json

from kafkaesque.lab.bench.figures import Goal
from kafkaesque.lab.bench.report import BenchmarkReport, figure_names


def report_of_two_peers() -> BenchmarkReport:
    report = BenchmarkReport("produce", {"acks": 1})
    case = report.case("raw")
    case.add("kafka", {"mb_per_s": 100.0})
    case.add("ours", {"mb_per_s": 150.0, "requests_per_s": 3.0})
    return report


def test_comparison_leaves_out_peers_that_did_not_run() -> None:
    report = report_of_two_peers()
    goals = {"floor": Goal("at least", 0.7), "kafka": Goal("at least", 1.3)}
    report.compare(report.case("raw"), "mb_per_s", goals)
    assert [(one.what, one.summary.median, one.met) for one in report.comparisons] == [
        ("mb_per_s ours/kafka", 1.5, True)
    ]


def test_peer_without_a_goal_is_compared_too() -> None:
    report = report_of_two_peers()
    report.compare(report.case("raw"), "mb_per_s", {})
    assert [(one.what, one.met) for one in report.comparisons] == [("mb_per_s ours/kafka", None)]


def test_own_figure_is_compared_with_its_goal() -> None:
    report = report_of_two_peers()
    report.hold(report.case("raw"), "mb_per_s", Goal("at least", 200))
    report.hold(report.case("raw"), "never measured", Goal("at least", 1))
    assert [one.met for one in report.comparisons] == [False]


def test_peers_are_listed_ours_first_whatever_the_order_of_turns() -> None:
    assert report_of_two_peers().case("raw").peers == ["ours", "kafka"]


def test_json_has_rounds_settings_and_verdicts() -> None:
    report = report_of_two_peers()
    report.compare(report.case("raw"), "mb_per_s", {"kafka": Goal("at most", 1.0)})
    found = json.loads(json.dumps(report.as_json()))
    assert found["settings"] == {"acks": 1}
    assert found["cases"][0]["figures"]["ours"]["mb_per_s"] == {
        "median": 150.0,
        "low": 150.0,
        "high": 150.0,
        "rounds": [150.0],
    }
    assert found["comparisons"][0]["goal"] == "at most 1"
    assert found["comparisons"][0]["met"] is False


def test_figures_come_in_the_order_of_first_appearance() -> None:
    assert figure_names(report_of_two_peers().cases) == ["mb_per_s", "requests_per_s"]
