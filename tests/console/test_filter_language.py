"""The filter language: parsing and matching."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkaesque.console.decoding.avro import Schemas
from kafkaesque.console.decoding.detection import Decoder
from kafkaesque.console.messages.record import ReadRecord
from kafkaesque.console.rules.filter_language import InvalidFilter, compile_filter, like, parse

DECODER = Decoder("orders", Schemas())
VALUE = (
    b'{"id": 7, "user": {"name": "Gregor", "is_bug": true}, "tags": ["red", "blue"], "none": null,'
    b' "price": 9.5, "odd key": 1, "u": "\\u017elu\\u0165"}'
)


def record(value: bytes | None = VALUE, key: bytes | None = b"42") -> ReadRecord:
    headers = [("trace", b"abc"), ("n", b"1")]
    return ReadRecord((3, 100), 1_794_805_200_000, (key, value), headers, DECODER)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("value.id == 7", True),
        ("value.id != 7", False),
        ("value.id == '7'", False),
        ("value.nowhere != 7", False),
        ("value.nowhere exists", False),
        ("value.none exists", True),
        ("value.none == null", True),
        ("value.user.is_bug == true", True),
        ("value.user.is_bug == 1", False),
        ("value.user.name startswith 'Gre'", True),
        ("value.user.name endswith 'or'", True),
        ("value.user.name contains 'rego'", True),
        ("value.user.name like 'G*g*r'", True),
        ("value.user.name like 'G*x*r'", False),
        ("value.tags contains 'red'", True),
        ("value.tags[1] == 'blue'", True),
        ("value.tags[-1] == 'blue'", True),
        ("value.tags[9] == 'blue'", False),
        ("value['odd key'] == 1", True),
        ('value."odd key" == 1', True),
        ("value.price > 9 and value.price <= 9.5", True),
        ("value.price < 'x'", False),
        ("value.id in (1, 7, 9)", True),
        ("value.id not in (1, 7, 9)", False),
        ("value contains 'Gregor'", True),
        ("value contains 'žluť'", True),
        ("value not contains 'Grete'", True),
        ("key == '42'", True),
        ("key == 42", True),
        ("key startswith '4'", False),
        ("headers.trace == 'abc'", True),
        ("headers.nope exists", False),
        ("partition == 3 and offset == 100", True),
        ("size > 10", True),
        ("timestamp >= '2026-11-16T05:00:00Z'", True),
        ("timestamp < '2026-11-16T05:00:00'", False),
        ("value.id == 1 or value.id == 7 and partition == 3", True),
        ("(value.id == 1 or value.id == 7) and partition == 4", False),
        ("not value.id == 1 && !(partition = 4)", True),
        ("value.id == 1 || partition == 3", True),
    ],
)
def test_filter_matches_or_not(text: str, expected: bool) -> None:
    assert compile_filter(parse(text))(record()) is expected


def test_values_that_are_not_json_are_searched_as_text() -> None:
    assert compile_filter(parse("value contains 'or'"))(record(b"error or not"))
    assert compile_filter(parse("value startswith 'err'"))(record(b"error or not"))
    assert not compile_filter(parse("value contains 'x'"))(record(None))
    assert not compile_filter(parse("value.a.b == 1"))(record(b"plain"))


@pytest.mark.parametrize(
    "text",
    ["", "value", "value ==", "bogus == 1", "value.id == 7 7", "(value.id == 7", "value.id == )",
     "value. == 1", "value[x] == 1", "partition.x == 1", "value like 3", "value.id < null",
     "timestamp > 'soon'", "value ~ 1", "value == 'open", "(" * 200 + "value == 1" + ")" * 200,
     "not " * 200 + "value == 1", "x" * 3000, "__import__('os')", "value.id == 7; 1"],
)  # fmt: skip
def test_invalid_filter_is_rejected_with_a_reason(text: str) -> None:
    with pytest.raises(InvalidFilter) as caught:
        compile_filter(parse(text))
    assert str(caught.value)


@settings(deadline=None, max_examples=200)
@given(st.text(max_size=80))
def test_any_text_is_a_valid_filter_or_rejected(text: str) -> None:
    try:
        match = compile_filter(parse(text))
    except InvalidFilter:
        return
    assert match(record()) in (True, False)


_scalars = st.none() | st.booleans() | st.integers(-5, 5) | st.text(max_size=4)
_values: st.SearchStrategy[Any] = st.recursive(
    _scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
)


@settings(deadline=None, max_examples=100)
@given(_values, st.sampled_from(["value.a == 1", "value[0] > 1", "value.a.b contains 'x'",
                                 "value in (1, 'a', null)", "value exists"]))  # fmt: skip
def test_no_value_makes_a_filter_fail(value: Any, text: str) -> None:
    import msgspec

    compile_filter(parse(text))(record(msgspec.json.encode(value)))


@settings(deadline=None, max_examples=100)
@given(st.text("ab*", max_size=6), st.text("ab", max_size=8))
def test_like_matches_as_a_glob_does(pattern: str, text: str) -> None:
    import fnmatch

    assert like(text, pattern.split("*")) is fnmatch.fnmatchcase(text, pattern)
