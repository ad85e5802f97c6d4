"""Data-driven tests: a script of commands, each block with the output that it must give.

A script consists of blocks; the text between blocks (empty lines, lines that begin with `#`) is
kept as it is:

    # two consumers start together
    join orders c1
    join orders c2 session=10s
    ----
    #1 ...

Above the dashes are commands, one per line: a name, arguments, and options written `name=value`; shell
quotes keep spaces together. Below, up to the next empty line, is the expected output, compared line by
line. With `rewrite=True` the actual output is written into the script: review the diff. The format is
that of cockroachdb/datadriven, which etcd's Raft uses. The caller implements the commands.
"""

from __future__ import annotations

import difflib
import shlex
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TypeAlias

RULE = "----"
EMPTY_LINE = "."
"""The notation of an empty line of output, since an empty line ends the block."""
NO_OUTPUT = "(nothing)"


class ScriptError(Exception):
    """The script is malformed."""


class ScriptMismatch(AssertionError):
    """A block had other output than the script expects; the message is the difference."""


@dataclass(frozen=True, slots=True)
class Command:
    """One line of a script."""

    name: str
    arguments: tuple[str, ...]
    options: Mapping[str, str]
    source: str
    line_number: int

    def option(self, name: str, default: str) -> str:
        return self.options.get(name, default)

    def expect_options(self, *known: str) -> None:
        """Reject unknown options: a misspelt one would otherwise test nothing."""
        unknown = set(self.options) - set(known)
        if unknown:
            raise ScriptError(f"line {self.line_number}: {self.name} has no {sorted(unknown)}")


@dataclass(frozen=True, slots=True)
class Block:
    commands: tuple[Command, ...]
    expected: tuple[str, ...]


Execute: TypeAlias = Callable[[Command], Iterable[str]]
"""Runs one command and yields its lines of output."""


def run_script(path: Path, execute: Execute, *, rewrite: bool = False) -> None:
    """Run every block of the script; ScriptMismatch for the first one that differs.

    With `rewrite`, nothing is compared and the file is rewritten with the actual output.
    """
    rewritten: list[str] = []
    for part in parse(path.read_text(encoding="utf-8")):
        if isinstance(part, str):
            rewritten.append(part)
            continue
        seen = _output(part, execute)
        if seen != part.expected and not rewrite:
            raise ScriptMismatch(_difference(path, part, seen))
        rewritten += [command.source for command in part.commands]
        rewritten += [RULE, *seen]
    if rewrite:
        path.write_text("\n".join(rewritten).rstrip("\n") + "\n", encoding="utf-8")


def parse(text: str) -> list[Block | str]:
    """The parts of a script in order: blocks, and the lines between them."""
    parts: list[Block | str] = []
    lines = text.splitlines()
    number = 0
    while number < len(lines):
        if not lines[number].strip() or lines[number].startswith("#"):
            parts.append(lines[number])
            number += 1
            continue
        commands = []
        while number < len(lines) and lines[number] != RULE:
            commands.append(_command(lines[number], number + 1))
            number += 1
        if number == len(lines):
            raise ScriptError(f"line {commands[-1].line_number}: no {RULE} after the commands")
        number += 1
        expected = []
        while number < len(lines) and lines[number].strip():
            expected.append(lines[number])
            number += 1
        parts.append(Block(tuple(commands), tuple(expected)))
    return parts


def _command(line: str, line_number: int) -> Command:
    if not line.strip() or line.startswith("#"):
        raise ScriptError(
            f"line {line_number}: no empty line or comment may separate commands from their {RULE}"
        )
    try:
        name, *words = shlex.split(line)
    except ValueError as error:
        raise ScriptError(f"line {line_number}: {error}") from error
    arguments = []
    options = {}
    for word in words:
        key, separator, value = word.partition("=")
        if separator:
            options[key] = value
        else:
            arguments.append(word)
    return Command(name, tuple(arguments), MappingProxyType(options), line, line_number)


def _output(block: Block, execute: Execute) -> tuple[str, ...]:
    lines: list[str] = []
    for command in block.commands:
        for text in execute(command):
            lines += (line.rstrip() or EMPTY_LINE for line in text.split("\n"))
    return tuple(lines) or (NO_OUTPUT,)


def _difference(path: Path, block: Block, seen: tuple[str, ...]) -> str:
    first = block.commands[0]
    diff = difflib.unified_diff(block.expected, seen, "expected", "seen", lineterm="", n=100)
    commands = [command.source for command in block.commands]
    return "\n".join([f"{path}:{first.line_number}:", *commands, *list(diff)[2:]])
