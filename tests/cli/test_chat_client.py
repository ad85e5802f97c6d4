"""Output of the plain chat client."""

from __future__ import annotations

import json

import pytest

from kafkaesque.cli.chat_client import OutputLine, _json_line, _text_line


@pytest.mark.parametrize(
    ("said", "line", "document"),
    [
        (OutputLine("hi", "ann"), "ann: hi", {"from": "ann", "room": None, "text": "hi"}),
        (OutputLine("hi", "ann", "#r"), "#r ann: hi", {"from": "ann", "room": "#r", "text": "hi"}),
        (OutputLine("no answer"), "-- no answer", {"notice": "no answer"}),
    ],
)
def test_line_for_people_and_for_programs(said: OutputLine, line: str, document: object) -> None:
    assert _text_line(said) == line
    assert json.loads(_json_line(said)) == document


def test_json_has_the_unchanged_text_on_one_line() -> None:
    text = "two\nlines \x1b[31m and a colour"
    assert "\n" not in _json_line(OutputLine(text, "ann"))
    assert json.loads(_json_line(OutputLine(text, "ann")))["text"] == text
    assert "\x1b" not in _text_line(OutputLine(text, "ann"))
