"""Data-driven tests: a script of commands, each block with the output that it must give.

A script is text in blocks; what stands between blocks (empty lines, lines that begin with `#`) is
kept as it is:

    # two consumers start together
    join orders c1
    join orders c2 session=10s
    ----
    #1 ...

Everything above the rule of dashes is commands, one a line: a name, arguments, and options written
`name=value`; shell quotes keep spaces together. Everything below, up to the next empty line, is
the output, compared line by line. Run with `rewrite=True` the script writes down what it saw: read
the diff, it is the review. The format is that of cockroachdb/datadriven, which etcd's Raft uses.
Nothing here knows what the commands mean.
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
"""How an empty line of output is written, since an empty line ends the block."""
NO_OUTPUT = "(nothing)"


class ScriptError(Exception):
    """The script itself is wrong."""


class ScriptMismatch(AssertionError):
    """A block gave other output than the script says; the message is the difference."""


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
        """Refuse a misspelt option, which would otherwise test nothing."""
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
    """Run every block of the script; ScriptMismatch tells of the first one that differs.

    With `rewrite` nothing differs: the file is written anew with what was seen.
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
        raise ScriptError(f"line {line_number}: commands and their {RULE} must stand together")
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
