from __future__ import annotations

import io
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.cli.samples import UNHURRIED, SampleRecord

from kafkaesque.admin.record_writer import OutgoingRecord
from kafkaesque.cli.record_input import InputFormat, read_records
from kafkaesque.cli.record_output import OutputFormat, make_formatter, record_object, unescape


@pytest.mark.parametrize(
    ("form", "expected"),
    [
        (OutputFormat(), b"value\n"),
        (OutputFormat(delimiter=b"\0"), b"value\0"),
        (OutputFormat(with_key=True), b"key\tvalue\n"),
        (OutputFormat(with_key=True, key_separator=b"="), b"key=value\n"),
        (OutputFormat(with_key=True, with_headers=True), b"a=1\tkey\tvalue\n"),
        (OutputFormat(as_hex=True), b"76616c7565\n"),
        (OutputFormat(as_base64=True), b"dmFsdWU=\n"),
        (OutputFormat("%t %p %o %k %s %h %T%%\\n"), b"orders 2 7 key value a=1 1767225600123%\n"),
        (OutputFormat("%K:%S \\x41\\t"), b"3:5 A\t"),
        (OutputFormat("%d"), b"2026-01-01T00:00:00.123Z"),
        (OutputFormat("%k", as_hex=True), b"6b6579"),
    ],
)
def test_a_record_in_each_format(form: OutputFormat, expected: bytes) -> None:
    assert make_formatter(form)(SampleRecord(headers_=(("a", b"1"),))) == expected


def test_null_prints_as_the_marker_and_has_size_minus_one() -> None:
    record = SampleRecord(value_=None, key_=None)
    form = OutputFormat("%k,%s,%K,%S", null_marker=b"NULL")
    assert make_formatter(form)(record) == b"NULL,NULL,-1,-1"


def test_an_unknown_letter_in_a_template_is_refused() -> None:
    with pytest.raises(ValueError, match="%y is unknown"):
        make_formatter(OutputFormat("%y"))


def test_text_in_a_template_is_not_taken_for_an_escape() -> None:
    assert make_formatter(OutputFormat("€\\q%s"))(SampleRecord()) == "€\\qvalue".encode()


def test_escapes_in_options() -> None:
    assert unescape("a\\tb\\x00\\\\n") == b"a\tb\x00\\n"


def test_json_holds_every_part_of_a_record() -> None:
    line = make_formatter(OutputFormat(as_json=True))(SampleRecord(headers_=(("a", b"1"),)))
    assert line.endswith(b"}\n")
    assert json.loads(line) == {
        "topic": "orders",
        "partition": 2,
        "offset": 7,
        "timestamp": 1_767_225_600_123,
        "timestamp_type": "create_time",
        "key": "key",
        "value": "value",
        "headers": {"a": "1"},
    }


def test_bytes_that_are_not_text_have_their_own_field() -> None:
    found = record_object(SampleRecord(key_=b"\xff", value_=None, headers_=(("h", b"\xfe"),)))
    assert "key" not in found
    assert found["key_base64"] == "/w=="
    assert found["value"] is None
    assert found["headers"] == {"h": {"base64": "/g=="}}


def test_repeated_headers_keep_order_as_pairs() -> None:
    found = record_object(SampleRecord(headers_=(("a", b"1"), ("b", None), ("a", b"2"))))
    assert found["headers"] == [["a", "1"], ["b", None], ["a", "2"]]


def test_a_record_without_timestamp_says_null() -> None:
    found = record_object(SampleRecord(timestamp_=(0, -1)))
    assert (found["timestamp"], found["timestamp_type"]) == (None, None)


OPTIONAL_BYTES = st.one_of(st.none(), st.binary(max_size=30))
HEADERS = st.lists(st.tuples(st.text(max_size=5), OPTIONAL_BYTES), max_size=4)


@UNHURRIED
@given(OPTIONAL_BYTES, OPTIONAL_BYTES, HEADERS, st.booleans())
def test_what_consume_writes_as_json_produce_reads_back(
    key: bytes | None,
    value: bytes | None,
    headers: list[tuple[str, bytes | None]],
    as_hex: bool,
) -> None:
    form = OutputFormat(as_json=True, as_hex=as_hex)
    line = make_formatter(form)(SampleRecord(value, key, tuple(headers)))
    (found,) = read_records(io.BytesIO(line), InputFormat("json"), OutgoingRecord(0, None))
    assert found == OutgoingRecord(1, value, key, tuple(headers), 2, 1_767_225_600_123)
