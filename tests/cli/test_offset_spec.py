from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.cli.samples import UNHURRIED

from kafkaesque.admin.rules.offset_reset import Bounds, OffsetSpec, resolve
from kafkaesque.cli.offset_spec import parse_offset_spec, parse_time_ms


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("beginning", OffsetSpec("beginning")),
        ("Earliest", OffsetSpec("beginning")),
        ("end", OffsetSpec("end")),
        ("latest", OffsetSpec("end")),
        ("0", OffsetSpec("offset", 0)),
        ("42", OffsetSpec("offset", 42)),
        ("-10", OffsetSpec("last", 10)),
        ("@1700000000000", OffsetSpec("time", 1_700_000_000_000)),
        ("2026-01-01T00:00:00Z", OffsetSpec("time", 1_767_225_600_000)),
        ("2026-01-01T01:00:00.500+01:00", OffsetSpec("time", 1_767_225_600_500)),
    ],
)
def test_each_form_is_read(text: str, expected: OffsetSpec) -> None:
    assert parse_offset_spec(text) == expected


@pytest.mark.parametrize("text", ["", "soon", "--3", "1.5", "@x", "2026-13-01"])
def test_another_word_is_rejected_with_the_list_of_forms(text: str) -> None:
    with pytest.raises(ValueError, match="ISO time"):
        parse_offset_spec(text)


def test_a_year_month_day_is_a_time_and_not_an_offset() -> None:
    assert parse_offset_spec("2026-01-01").kind == "time"
    assert parse_time_ms("@5") == 5


@UNHURRIED
@given(st.integers(0, 1000), st.integers(0, 1000), st.integers(0, 5000))
def test_offsets_are_clamped_to_the_bounds(earliest: int, count: int, number: int) -> None:
    bounds = Bounds(earliest, earliest + count, at_time=number)
    for kind in ("beginning", "end", "offset", "last", "time"):
        assert earliest <= resolve(OffsetSpec(kind, number), bounds) <= earliest + count
