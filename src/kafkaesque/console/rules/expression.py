"""The filter language of the message browser: text to a tree. Small, safe, and without regular
expressions (a hostile one would hold the whole process).

    value.user.id == 42 and not (key startswith "test-" or headers.trace exists)
    value contains "timeout" or value.tags[0] in ("red", "blue") or partition == 3
    timestamp >= "2026-11-16T05:00:00Z" and value.name like "ka*ka"

Precedence: or < and < not < comparison. Names: key, value, headers, partition, offset, timestamp,
size. A path that leads nowhere is `missing`: every comparison with it is false.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, NamedTuple

LENGTH_MAX: Final = 2000
DEPTH_MAX: Final = 50
ROOTS: Final = ("key", "value", "headers", "partition", "offset", "timestamp", "size")
COMPARISONS: Final = ("==", "!=", "<=", ">=", "<", ">")
TEXT_OPERATORS: Final = ("contains", "startswith", "endswith", "like")
WORDS: Final = frozenset({"and", "or", "not", "in", "exists", "true", "false", "null",
                          *TEXT_OPERATORS})  # fmt: skip

Literal = str | int | float | bool | None


class InvalidFilter(Exception):
    """The text is no filter; the message says where and why."""


class Token(NamedTuple):
    kind: str
    """name, string, number, symbol or end."""
    text: str
    position: int


@dataclass(frozen=True, slots=True)
class Path:
    """`value.user.tags[0]` is root `value` and steps `user`, `tags`, 0."""

    root: str
    steps: tuple[str | int, ...] = ()


@dataclass(frozen=True, slots=True)
class Compare:
    path: Path
    operator: str
    literal: Literal


@dataclass(frozen=True, slots=True)
class OneOf:
    path: Path
    literals: tuple[Literal, ...]


@dataclass(frozen=True, slots=True)
class Exists:
    path: Path


@dataclass(frozen=True, slots=True)
class Not:
    inner: Node


@dataclass(frozen=True, slots=True)
class Both:
    parts: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Either:
    parts: tuple[Node, ...]


Node = Compare | OneOf | Exists | Not | Both | Either

_TOKEN: Final = re.compile(
    r"""\s*(?:
      (?P<string>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')
    | (?P<number>-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)
    | (?P<name>[A-Za-z_][A-Za-z0-9_-]*)
    | (?P<symbol>==|!=|<=|>=|<|>|\(|\)|\[|\]|\.|,|&&|\|\||!|=)
    )""",
    re.VERBOSE,
)
_ESCAPED: Final = re.compile(r"\\(.)", re.DOTALL)
_SYNONYMS: Final = {"&&": "and", "||": "or", "!": "not", "=": "=="}


def tokenize(text: str) -> list[Token]:
    if len(text) > LENGTH_MAX:
        raise InvalidFilter(f"a filter has at most {LENGTH_MAX} characters")
    tokens = []
    position, end = 0, len(text.rstrip())
    while position < end:
        found = _TOKEN.match(text, position)
        if found is None:
            raise InvalidFilter(
                f"at {position + 1}: '{text[position : position + 10]}' is not understood"
            )
        kind = found.lastgroup or ""
        word = found[kind]
        if word in _SYNONYMS:
            word = _SYNONYMS[word]
            kind = "symbol" if word == "==" else "name"
        tokens.append(Token(kind, word, found.start(kind)))
        position = found.end()
    return [*tokens, Token("end", "", end)]


def parse(text: str) -> Node:
    """The tree of a filter; InvalidFilter says what is wrong."""
    parser = _Parser(tokenize(text))
    node = parser.either(0)
    parser.expect_end()
    return node


class _Parser:
    """Recursive descent, one token ahead."""

    def __init__(self, tokens: list[Token]) -> None:
        self._tokens = tokens
        self._at = 0

    @property
    def _next(self) -> Token:
        return self._tokens[self._at]

    def _take(self) -> Token:
        token = self._next
        self._at += token.kind != "end"
        return token

    def _accept(self, *words: str) -> str | None:
        token = self._next
        if token.kind in ("name", "symbol") and token.text in words:
            self._at += 1
            return token.text
        return None

    def _expect(self, word: str) -> None:
        if self._accept(word) is None:
            raise self._wrong(f"'{word}'")

    def _wrong(self, wanted: str) -> InvalidFilter:
        token = self._next
        found = f"'{token.text}'" if token.kind != "end" else "the end"
        return InvalidFilter(f"at {token.position + 1}: expected {wanted}, found {found}")

    def expect_end(self) -> None:
        if self._next.kind != "end":
            raise self._wrong("and, or, or the end")

    def either(self, depth: int) -> Node:
        if depth > DEPTH_MAX:
            raise InvalidFilter("the filter is nested too deeply")
        parts = [self._both(depth)]
        while self._accept("or"):
            parts.append(self._both(depth))
        return parts[0] if len(parts) == 1 else Either(tuple(parts))

    def _both(self, depth: int) -> Node:
        parts = [self._negated(depth)]
        while self._accept("and"):
            parts.append(self._negated(depth))
        return parts[0] if len(parts) == 1 else Both(tuple(parts))

    def _negated(self, depth: int) -> Node:
        if depth > DEPTH_MAX:
            raise InvalidFilter("the filter is nested too deeply")
        if self._accept("not"):
            return Not(self._negated(depth + 1))
        if self._accept("("):
            node = self.either(depth + 1)
            self._expect(")")
            return node
        return self._comparison()

    def _comparison(self) -> Node:
        path = self._path()
        if self._accept("exists"):
            return Exists(path)
        if self._accept("in"):
            return OneOf(path, self._literals())
        negate = self._accept("not") is not None
        if negate and self._accept("in"):
            return Not(OneOf(path, self._literals()))
        operator = self._accept(*(TEXT_OPERATORS if negate else (*COMPARISONS, *TEXT_OPERATORS)))
        if operator is None:
            raise self._wrong(
                "a comparison (== != < <= > >= contains startswith endswith like in exists)"
            )
        literal = self._literal()
        if operator in TEXT_OPERATORS and not isinstance(literal, str):
            raise InvalidFilter(f"'{operator}' wants a text in quotes")
        compare = Compare(path, operator, literal)
        return Not(compare) if negate else compare

    def _path(self) -> Path:
        token = self._next
        if token.kind != "name" or token.text not in ROOTS:
            raise self._wrong(f"one of {', '.join(ROOTS)}")
        self._take()
        steps: list[str | int] = []
        while True:
            if self._accept("."):
                step = self._take()
                if step.kind not in ("name", "string"):
                    raise self._wrong("a field name")
                steps.append(_unquote(step.text) if step.kind == "string" else step.text)
            elif self._accept("["):
                steps.append(self._index())
                self._expect("]")
            else:
                return Path(token.text, tuple(steps))

    def _index(self) -> str | int:
        step = self._take()
        if step.kind == "number" and step.text.lstrip("-").isdecimal():
            return int(step.text)
        if step.kind == "string":
            return _unquote(step.text)
        raise self._wrong("a number or a text in quotes")

    def _literals(self) -> tuple[Literal, ...]:
        self._expect("(")
        literals = [self._literal()]
        while self._accept(","):
            literals.append(self._literal())
        self._expect(")")
        return tuple(literals)

    def _literal(self) -> Literal:
        token = self._next
        if token.kind == "string":
            self._take()
            return _unquote(token.text)
        if token.kind == "number":
            self._take()
            return int(token.text) if token.text.lstrip("-").isdecimal() else float(token.text)
        words: dict[str, Literal] = {"true": True, "false": False, "null": None}
        if token.kind == "name" and token.text in words:
            self._take()
            return words[token.text]
        raise self._wrong("a number, a text in quotes, true, false or null")


def _unquote(text: str) -> str:
    names = {"n": "\n", "t": "\t", "r": "\r"}
    return _ESCAPED.sub(lambda found: names.get(found[1], found[1]), text[1:-1])
