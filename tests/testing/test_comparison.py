"""Comparison of expected and received records, and the message of a failing test."""

from __future__ import annotations

import pytest

from kafkaesque.testing.comparison import compare
from kafkaesque.testing.records import Received, RecordSpec, fields_of


def received(*values: str, key: bytes | None = None) -> list[Received]:
    return [Received("t", 0, offset, key, value.encode()) for offset, value in enumerate(values)]


def marks(expected: list[RecordSpec], came: list[Received], *, in_order: bool) -> str:
    fields = [fields_of(spec) for spec in expected]
    return "".join(mark for mark, _ in compare(fields, came, in_order=in_order).rows)


@pytest.mark.parametrize(
    ("expected", "came", "marks_in_order", "marks_in_any_order"),
    [
        ([], [], "", ""),
        (["a", "b"], ["a", "b"], "  ", "  "),
        (["a", "b"], ["b", "a"], "+ -", "  "),
        (["a", "b"], ["a"], " -", " -"),
        (["a"], ["a", "a"], " +", " +"),
        (["a", "b", "c"], ["a", "x", "c"], " -+ ", " - +"),
    ],
)
def test_difference_is_marked(
    expected: list[RecordSpec], came: list[str], marks_in_order: str, marks_in_any_order: str
) -> None:
    assert marks(expected, received(*came), in_order=True) == marks_in_order
    assert marks(expected, received(*came), in_order=False) == marks_in_any_order


def test_in_order_each_record_is_compared_with_the_expectation_at_its_position() -> None:
    came = received("a", "a", key=b"k")
    assert marks(["a", ("k", "a")], came, in_order=True) == "  "
    assert marks([("k", "a"), "a"], came, in_order=True) == "  "


def test_in_any_order_keyed_expectations_take_precedence_over_bare_values() -> None:
    came = [*received("a", key=b"k"), *received("a", key=b"other")]
    assert marks(["a", ("k", "a")], came, in_order=False) == "  "


def test_report_shows_received_and_missing_records() -> None:
    expected = [fields_of(spec) for spec in ["a", {"key": "k", "value": {"n": 1}}]]
    came = [*received("a"), Received("t", 3, 9, b"\xff", None, (("h", b"1"),))]
    report = compare(expected, came, in_order=True).report("t", within_s=5)
    assert report.splitlines() == [
        "topic t: 1 missing, 1 unexpected after 5 s",
        "    key=None value='a' (partition 0, offset 0)",
        "  - key='k' value={'n': 1}",
        "  + key=b'\\xff' value=None headers={h: '1'} (partition 3, offset 9)",
        "  (' ' came as expected, '-' missing, '+' unexpected)",
    ]


def test_report_names_every_expected_field() -> None:
    fields = fields_of({"value": "a", "headers": {"h": "1"}, "partition": 1, "timestamp": 5})
    report = compare([fields], [], in_order=True).report("t", within_s=0.5)
    assert "- value='a' headers={h: '1'} partition=1 timestamp=5" in report


def test_report_stays_readable_with_many_and_long_records() -> None:
    report = compare([], received(*["x" * 1000] * 100), in_order=True).report("t", within_s=5)
    assert "topic t: 100 unexpected\n" in report
    assert "... and 60 more rows" in report
    assert "... (1002 characters)" in report
    assert max(map(len, report.splitlines())) < 200
