"""Rendering of reports: numbers, spreads, tables."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from kafkaesque.lab.bench.figures import Goal, Summary
from kafkaesque.lab.bench.render import number, spread, to_console, to_markdown
from kafkaesque.lab.bench.report import BenchmarkReport


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1234567.8, "1,234,568"),
        (99.44, "99.4"),
        (0.12345, "0.123"),
        (0.0, "0"),
        (0.00001234, "0.000012"),
    ],
)
def test_number_has_three_digits_and_no_exponent(value: float, text: str) -> None:
    assert number(value) == text


def test_spread_of_one_round_is_just_the_number() -> None:
    assert spread(Summary((2.0,))) == "2"
    assert spread(Summary((1.0, 2.0, 4.0))) == "2  [1 .. 4]"


def sample() -> BenchmarkReport:
    report = BenchmarkReport(
        "latency", {"acks": 1}, machine={"cores": 2}, peers={"ours": "kafkaesque"}
    )
    case = report.case("one at a time")
    case.add("floor", {"p50_ms": 0.05})
    case.add("ours", {"p50_ms": 0.2, "extra": 1.0})
    report.compare(case, "p50_ms", {"floor": Goal("at most", 2.0)})
    report.notes.append("busy")
    return report


def test_terminal_shows_settings_machine_figures_and_verdict() -> None:
    out = io.StringIO()
    to_console(sample(), Console(file=out, width=120))
    text = out.getvalue()
    for wanted in (
        "acks=1",
        "cores=2",
        "kafkaesque",
        "p50_ms",
        "0.05",
        "at most 2",
        "NOT met",
        "busy",
    ):
        assert wanted in text


def test_markdown_has_one_column_per_peer_and_leaves_gaps_empty() -> None:
    lines = to_markdown(sample()).splitlines()
    assert "| figure | ours | floor |" in lines
    assert "| extra | 1 |  |" in lines
    assert "| one at a time | p50_ms ours/floor | 4 | at most 2 | NOT met |" in lines
