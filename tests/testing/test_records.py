"""Plain values as records, and the matching of records with expectations."""

from __future__ import annotations

from typing import Any

import pytest

from kafkaesque.testing.records import (
    Received,
    content_bytes,
    fields_of,
    header_pairs,
    matches,
)

RECORD = Received(
    topic="t",
    partition=2,
    offset=7,
    key=b"alice",
    value=b'{"b": [1, null], "a": "\\u00e9"}',
    headers=(("trace", b"1"), ("empty", None)),
    timestamp_ms=1000,
)


@pytest.mark.parametrize(
    ("spec", "fields"),
    [
        ("v", {"value": "v"}),
        (b"v", {"value": b"v"}),
        (("k", None), {"key": "k", "value": None}),
        ({"key": "k", "partition": 1}, {"key": "k", "partition": 1}),
    ],
)
def test_plain_value_gives_the_fields_it_names(spec: Any, fields: dict[str, object]) -> None:
    assert fields_of(spec) == fields


@pytest.mark.parametrize(
    ("spec", "error", "message"),
    [
        (("k",), ValueError, r"\(key, value\)"),
        (("k", "v", "h"), ValueError, r"\(key, value\)"),
        ({"cents": 1}, ValueError, "a record has headers, key, .* not cents"),
        (None, TypeError, "not None"),
        (["k", "v"], TypeError, "not \\['k', 'v'\\]"),
    ],
)
def test_error_for_a_value_that_is_not_a_record(
    spec: Any, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        fields_of(spec)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (None, None),
        ("é", "é".encode()),
        (b"\xff", b"\xff"),
        ({"a": [1, None]}, b'{"a":[1,null]}'),
        (True, b"true"),
        (12, b"12"),
    ],
)
def test_content_becomes_bytes(content: Any, expected: bytes | None) -> None:
    assert content_bytes(content) == expected


def test_headers_keep_their_order_and_repeat_only_as_pairs() -> None:
    assert header_pairs({"a": "1", "b": None}) == [("a", b"1"), ("b", None)]
    assert header_pairs([("a", b"1"), ("a", "2")]) == [("a", b"1"), ("a", b"2")]


@pytest.mark.parametrize(
    "spec",
    [
        {},
        {"key": "alice"},
        (b"alice", {"a": "é", "b": [1, None]}),
        {"headers": {"trace": "1", "empty": None}},
        {"partition": 2, "timestamp": 1000},
    ],
)
def test_record_matches_an_expectation_of_some_or_all_fields(spec: Any) -> None:
    assert matches(fields_of(spec), RECORD)


@pytest.mark.parametrize(
    "spec",
    [
        {"key": "bob"},
        {"key": None},
        {"value": None},
        {"value": {"a": "é"}},
        {"headers": {"trace": "1"}},
        {"headers": {"empty": None, "trace": "1"}},
        {"headers": {}},
        {"partition": 1},
        {"timestamp": 999},
    ],
)
def test_record_does_not_match_if_one_field_differs(spec: Any) -> None:
    assert not matches(fields_of(spec), RECORD)


def test_value_that_is_not_json_matches_no_json() -> None:
    assert not matches({"value": {"a": 1}}, Received("t", 0, 0, None, b"plain"))
    assert not matches({"value": {"a": 1}}, Received("t", 0, 0, None, None))


def test_received_reads_its_content() -> None:
    assert RECORD.key_text == "alice"
    assert RECORD.json == {"a": "é", "b": [1, None]}
    null = Received("t", 0, 0, None, None)
    assert (null.key_text, null.text, null.json) == (None, None, None)
