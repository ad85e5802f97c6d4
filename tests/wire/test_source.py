"""The builder of generated functions."""

from __future__ import annotations

import traceback

import pytest

from kafkaesque.wire.source import Source


def test_function_is_compiled_with_its_constants() -> None:
    source = Source({"base": 40})
    two = source.constant("C", 2)
    with source.block("def answer():"):
        source.line(f"return base + {two}")

    assert source.compile("answer", "test")() == 42


def test_same_value_keeps_one_name_and_names_do_not_repeat() -> None:
    source = Source()
    value = object()

    assert source.constant("C", value) == source.constant("C", value)
    assert source.fresh("n") != source.fresh("n")


def test_traceback_shows_the_generated_line() -> None:
    source = Source()
    with source.block("def broken(a):"):
        source.line("return a.nothing_of_this_name")
    broken = source.compile("broken", "test of tracebacks")

    with pytest.raises(AttributeError) as caught:
        broken(1)

    assert "return a.nothing_of_this_name" in "".join(traceback.format_exception(caught.value))
