"""The runner of recorded scripts, kafkaesque.testing.script."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kafkaesque.testing.script import (
    Block,
    Command,
    ScriptError,
    ScriptMismatch,
    parse,
    run_script,
)

SCRIPT = """\
# greetings

say hello world
say 'two words' to=you
----
hello world
two words -> you

# the end
"""


def say(command: Command) -> Iterator[str]:
    command.expect_options("to")
    text = " ".join(command.arguments)
    yield f"{text} -> {command.options['to']}" if "to" in command.options else text


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "script.txt"
    path.write_text(SCRIPT)
    return path


def test_script_with_the_recorded_output_passes(script: Path) -> None:
    run_script(script, say)
    assert script.read_text() == SCRIPT


def test_other_output_is_a_mismatch_with_place_and_difference(script: Path) -> None:
    script.write_text(SCRIPT.replace("hello world\ntwo", "goodbye\ntwo"))
    with pytest.raises(ScriptMismatch) as caught:
        run_script(script, say)
    assert "script.txt:3" in str(caught.value)
    assert "-goodbye\n+hello world" in str(caught.value)


def test_rewriting_keeps_everything_but_the_output(script: Path) -> None:
    script.write_text(SCRIPT.replace("hello world\ntwo words -> you", "old"))
    run_script(script, say, rewrite=True)
    assert script.read_text() == SCRIPT


def test_rewriting_twice_changes_nothing(script: Path) -> None:
    script.write_text("say\n----\n\nsay x\n----")
    run_script(script, lambda command: [] if not command.arguments else ["a\n\nb"], rewrite=True)
    once = script.read_text()
    assert once == "say\n----\n(nothing)\n\nsay x\n----\na\n.\nb\n"
    run_script(script, lambda command: [] if not command.arguments else ["a\n\nb"])


def test_parts_are_blocks_and_the_lines_between() -> None:
    parts = parse(SCRIPT)
    assert [part for part in parts if isinstance(part, str)] == ["# greetings", "", "", "# the end"]
    (block,) = (part for part in parts if isinstance(part, Block))
    assert [command.arguments for command in block.commands] == [("hello", "world"), ("two words",)]
    assert block.commands[1].option("to", "") == "you"
    assert block.commands[0].option("to", "nobody") == "nobody"
    assert block.commands[1].line_number == 4


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("say hello\n", "line 1: no ----"),
        ("say hello\n\nsay more\n----\n", "line 2"),
        ("say 'hello\n----\n", "line 1: No closing quotation"),
    ],
)
def test_script_that_is_wrong_says_where(text: str, message: str) -> None:
    with pytest.raises(ScriptError, match=message):
        parse(text)


def test_misspelt_option_is_refused(script: Path) -> None:
    script.write_text("say x too=you\n----\n")
    with pytest.raises(ScriptError, match="too"):
        run_script(script, say)
