from __future__ import annotations

import json

import pytest

from kafkaesque.cli.render import (
    Column,
    Screen,
    exact,
    friendly,
    iso_time,
    plain_table,
)

COLUMNS = [Column("name", "Name"), Column("n", "Lag then", "count")]


def test_a_pipe_gets_aligned_columns_with_exact_numbers() -> None:
    text = plain_table(COLUMNS, [{"name": "a", "n": 1234567}, {"name": "longer", "n": None}])
    assert text.splitlines() == [
        "NAME    LAG-THEN",
        "a        1234567",
        "longer         -",
    ]


def test_titles_of_two_words_stay_one_field_for_awk() -> None:
    assert plain_table(COLUMNS, []).split() == ["NAME", "LAG-THEN"]


@pytest.mark.parametrize(
    ("value", "expected"),
    [(None, "-"), ("", "-"), (0, "0"), (True, "yes"), ([1, 2], "1,2"), ([], "-"), ("x", "x")],
)
def test_cells_of_a_pipe(value: object, expected: str) -> None:
    assert exact(value) == expected


def test_cells_of_a_terminal_are_grouped_and_have_units() -> None:
    assert friendly(1234567, "count") == "1,234,567"
    assert friendly(1536, "bytes") == "1.5 KiB"
    assert friendly(None, "count") == "-"
    assert friendly(True, "count") == "yes"


def test_times_are_utc_to_the_millisecond() -> None:
    assert iso_time(1_767_225_600_007) == "2026-01-01T00:00:00.007Z"


def test_json_prints_the_value_and_no_notes(capsys: pytest.CaptureFixture[str]) -> None:
    screen = Screen(as_json=True)
    screen.note("remark")
    screen.document({"a": "é"}, lambda: None)
    out, err = capsys.readouterr()
    assert json.loads(out) == {"a": "é"}
    assert "é" in out
    assert err == ""


def test_empty_table_is_a_note_on_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    Screen(as_json=False).table(COLUMNS, [], "nothing here")
    out, err = capsys.readouterr()
    assert out == ""
    assert "nothing here" in err
