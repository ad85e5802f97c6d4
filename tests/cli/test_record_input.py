from __future__ import annotations

import io
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.cli.samples import UNHURRIED

from kafkaesque.admin.record_writer import OutgoingRecord
from kafkaesque.cli import record_input
from kafkaesque.cli.record_input import InputError, InputFormat, read_records

EMPTY = OutgoingRecord(0, None)


def records(
    data: bytes, form: InputFormat, template: OutgoingRecord = EMPTY
) -> list[OutgoingRecord]:
    return list(read_records(io.BytesIO(data), form, template))


def test_line_is_a_value_with_its_number() -> None:
    found = records(b"one\n\nthree", InputFormat())
    assert [(r.number, r.value) for r in found] == [(1, b"one"), (2, b""), (3, b"three")]


def test_a_carriage_return_belongs_to_the_value() -> None:
    assert records(b"a\r\n", InputFormat())[0].value == b"a\r"


def test_line_is_split_at_the_first_separator_only() -> None:
    found = records(b"k:v:w\n", InputFormat(key_separator=b":"))
    assert (found[0].key, found[0].value) == (b"k", b"v:w")


def test_a_line_without_its_separator_is_refused_by_number() -> None:
    with pytest.raises(InputError, match="line 2"):
        records(b"a:1\nb\n", InputFormat(key_separator=b":"))


def test_the_null_marker_makes_a_tombstone() -> None:
    found = records(b"k:NULL\nNULL:v\n", InputFormat(key_separator=b":", null_marker=b"NULL"))
    assert [(r.key, r.value) for r in found] == [(b"k", None), (None, b"v")]


def test_missing_fields_come_from_the_command_line() -> None:
    template = OutgoingRecord(0, None, b"key", (("h", b"v"),), 3, 99)
    assert records(b"x\n", InputFormat(), template) == [
        OutgoingRecord(1, b"x", b"key", (("h", b"v"),), 3, 99)
    ]


def test_base64_lines_become_bytes() -> None:
    assert records(b"AP8=\n", InputFormat(is_base64=True))[0].value == b"\x00\xff"
    with pytest.raises(InputError, match="line 1: not base64"):
        records(b"@@@\n", InputFormat(is_base64=True))


def test_raw_takes_the_whole_input_as_one_value() -> None:
    assert [r.value for r in records(b"a\nb\n", InputFormat("raw"))] == [b"a\nb\n"]


def test_a_line_without_end_stops_at_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_input, "RECORD_SIZE_BYTES_MAX", 10)
    with pytest.raises(InputError, match="line 2: longer than 10"):
        records(b"short\n" + b"x" * 11, InputFormat())
    with pytest.raises(InputError, match="too large"):
        records(b"x" * 11, InputFormat("raw"))


def test_a_json_line_gives_every_part() -> None:
    line = b'{"key": "k", "value": "v", "headers": {"a": "b"}, "partition": 2, "timestamp": 5}\n'
    assert records(line, InputFormat("json")) == [
        OutgoingRecord(1, b"v", b"k", (("a", b"b"),), 2, 5)
    ]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ('"text"', b"text"),
        ("null", None),
        ('{"n": 1}', b'{"n":1}'),
        ("[1, 2]", b"[1,2]"),
        ("7", b"7"),
    ],
)
def test_a_json_value_that_is_no_string_is_its_compact_text(
    value: str, expected: bytes | None
) -> None:
    assert records(f'{{"value": {value}}}'.encode(), InputFormat("json"))[0].value == expected


def test_json_headers_may_repeat_as_pairs_and_hold_bytes() -> None:
    line = b'{"value": "v", "headers": [["a", "1"], ["a", null], ["b", {"base64": "/w=="}]]}'
    found = records(line, InputFormat("json"))[0].headers
    assert found == (("a", b"1"), ("a", None), ("b", b"\xff"))


def test_json_bytes_come_as_base64_or_hex() -> None:
    found = records(b'{"key_base64": "/w==", "value_hex": "00ff"}', InputFormat("json"))[0]
    assert (found.key, found.value) == (b"\xff", b"\x00\xff")


def test_partition_of_the_command_line_overrides_json() -> None:
    template = OutgoingRecord(0, None, partition=0)
    assert (
        records(b'{"value": "v", "partition": 9}', InputFormat("json"), template)[0].partition == 0
    )


def test_blank_json_lines_are_skipped_but_counted() -> None:
    assert [r.number for r in records(b'\n{"value": "v"}\n', InputFormat("json"))] == [2]


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        (b"nope", "not JSON"),
        (b"[1]", "not a JSON object"),
        (b'{"valeu": "x"}', "unknown field 'valeu'"),
        (b'{"value": "x", "partition": -1}', "partition must be"),
        (b'{"value": "x", "partition": true}', "partition must be"),
        (b'{"value": "x", "timestamp": "later"}', "nor an ISO time"),
        (b'{"value": "x", "headers": 3}', "headers must be"),
        (b'{"value_base64": "?"}', "not base64"),
        (b'{"value_hex": "0"}', "value_hex"),
        (b'{"value": "\\ud800"}', "surrogate"),
        (b'{"value": "x", "headers": {"\\ud800": "x"}}', "surrogate"),
        (b'{"value": "x", "partition": 2147483648}', "partition must be"),
        (b'{"value": "x", "timestamp": 9223372036854775808}', "timestamp must be"),
        (b'{"value": ' + b"[" * 100_000, "not JSON"),
    ],
)
def test_a_bad_json_line_is_refused_with_its_number(line: bytes, problem: str) -> None:
    with pytest.raises(InputError, match="line 1") as refused:
        records(line, InputFormat("json"))
    assert problem in str(refused.value)


@UNHURRIED
@given(st.binary(max_size=200))
def test_any_bytes_give_records_or_an_input_error(data: bytes) -> None:
    for form in (InputFormat("json"), InputFormat(is_base64=True), InputFormat(key_separator=b":")):
        try:
            records(data, form)
        except InputError:
            continue


@UNHURRIED
@given(st.text(), st.one_of(st.none(), st.text()))
def test_text_survives_json_lines(key: str, value: str | None) -> None:
    line = json.dumps({"key": key, "value": value}).encode()
    found = records(line, InputFormat("json"))[0]
    assert found.key == key.encode()
    assert found.value == (None if value is None else value.encode())
