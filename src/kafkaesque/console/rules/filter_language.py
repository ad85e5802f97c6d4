"""The filter language of the message browser: `parse` a text, `compile_filter` its tree.

There are no regular expressions, because a hostile one would block the whole process.

    value.user.id == 42 and not (key startswith "test-" or headers.trace exists)
    value contains "timeout" or value.tags[0] in ("red", "blue") or partition == 3
    timestamp >= "2026-11-16T05:00:00Z" and value.name like "ka*ka"

Precedence: or < and < not < comparison. Names: key, value, headers, partition, offset, timestamp,
size. Every comparison with a path that does not exist in the record is false.

A compiled filter is a closure over records. It decides on the raw bytes where possible: `value
contains "x"` never decodes a value that lacks these bytes, so that a search reads a million records
in seconds.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple, Protocol

LENGTH_MAX: Final = 2000
DEPTH_MAX: Final = 50
ROOTS: Final = ("key", "value", "headers", "partition", "offset", "timestamp", "size")
COMPARISONS: Final = ("==", "!=", "<=", ">=", "<", ">")
TEXT_OPERATORS: Final = ("contains", "startswith", "endswith", "like")
WORDS: Final = frozenset({"and", "or", "not", "in", "exists", "true", "false", "null",
                          *TEXT_OPERATORS})  # fmt: skip

Literal = str | int | float | bool | None


class InvalidFilter(Exception):
    """The text is not a valid filter; the message says where and why."""


class Token(NamedTuple):
    kind: str
    """name, string, number, symbol or end."""
    text: str
    position: int


@dataclass(frozen=True, slots=True)
class Path:
    """`value.user.tags[0]` has the root `value` and the steps `user`, `tags`, 0."""

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
class HasField:
    path: Path


@dataclass(frozen=True, slots=True)
class Not:
    inner: Node


@dataclass(frozen=True, slots=True)
class And:
    parts: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Or:
    parts: tuple[Node, ...]


Node = Compare | OneOf | HasField | Not | And | Or

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
                f"at {position + 1}: '{text[position : position + 10]}' is not valid here"
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
    """The syntax tree of a filter. Raises InvalidFilter."""
    parser = _Parser(tokenize(text))
    node = parser.disjunction(0)
    parser.expect_end()
    return node


class _Parser:
    """A recursive-descent parser with one token of lookahead."""

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
            raise self._error(f"'{word}'")

    def _error(self, wanted: str) -> InvalidFilter:
        token = self._next
        found = f"'{token.text}'" if token.kind != "end" else "the end"
        return InvalidFilter(f"at {token.position + 1}: expected {wanted}, found {found}")

    def expect_end(self) -> None:
        if self._next.kind != "end":
            raise self._error("and, or, or the end")

    def disjunction(self, depth: int) -> Node:
        if depth > DEPTH_MAX:
            raise InvalidFilter("the filter is nested too deeply")
        parts = [self._conjunction(depth)]
        while self._accept("or"):
            parts.append(self._conjunction(depth))
        return parts[0] if len(parts) == 1 else Or(tuple(parts))

    def _conjunction(self, depth: int) -> Node:
        parts = [self._negation(depth)]
        while self._accept("and"):
            parts.append(self._negation(depth))
        return parts[0] if len(parts) == 1 else And(tuple(parts))

    def _negation(self, depth: int) -> Node:
        if depth > DEPTH_MAX:
            raise InvalidFilter("the filter is nested too deeply")
        if self._accept("not"):
            return Not(self._negation(depth + 1))
        if self._accept("("):
            node = self.disjunction(depth + 1)
            self._expect(")")
            return node
        return self._comparison()

    def _comparison(self) -> Node:
        path = self._path()
        if self._accept("exists"):
            return HasField(path)
        if self._accept("in"):
            return OneOf(path, self._literals())
        negate = self._accept("not") is not None
        if negate and self._accept("in"):
            return Not(OneOf(path, self._literals()))
        operator = self._accept(*(TEXT_OPERATORS if negate else (*COMPARISONS, *TEXT_OPERATORS)))
        if operator is None:
            raise self._error(
                "a comparison (== != < <= > >= contains startswith endswith like in exists)"
            )
        literal = self._literal()
        if operator in TEXT_OPERATORS and not isinstance(literal, str):
            raise InvalidFilter(f"'{operator}' needs a string in quotes")
        compare = Compare(path, operator, literal)
        return Not(compare) if negate else compare

    def _path(self) -> Path:
        token = self._next
        if token.kind != "name" or token.text not in ROOTS:
            raise self._error(f"one of {', '.join(ROOTS)}")
        self._take()
        steps: list[str | int] = []
        while True:
            if self._accept("."):
                step = self._take()
                if step.kind not in ("name", "string"):
                    raise self._error("a field name")
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
        raise self._error("a number or a string in quotes")

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
        raise self._error("a number, a string in quotes, true, false or null")


def _unquote(text: str) -> str:
    names = {"n": "\n", "t": "\t", "r": "\r"}
    return _ESCAPED.sub(lambda found: names.get(found[1], found[1]), text[1:-1])


class Searchable(Protocol):
    """The attributes of a record that filters use. Keys and values are decoded on first access."""

    partition: int
    offset: int
    timestamp_ms: int

    @property
    def key_bytes(self) -> bytes | None: ...
    @property
    def value_bytes(self) -> bytes | None: ...
    @property
    def key(self) -> Any: ...
    @property
    def value(self) -> Any: ...
    @property
    def headers(self) -> dict[str, Any]: ...


Match = Callable[[Searchable], bool]
MISSING: Final = object()

_ORDER: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def compile_filter(node: Node) -> Match:
    """A function that decides whether a record matches. Raises InvalidFilter."""
    match node:
        case And(parts):
            conjuncts = [compile_filter(part) for part in parts]
            return lambda record: all(part(record) for part in conjuncts)
        case Or(parts):
            disjuncts = [compile_filter(part) for part in parts]
            return lambda record: any(part(record) for part in disjuncts)
        case Not(inner):
            negated = compile_filter(inner)
            return lambda record: not negated(record)
        case HasField(path):
            get = _getter(path)
            return lambda record: get(record) is not MISSING
        case OneOf(path, literals):
            comparisons = [_compare(path, "==", literal) for literal in literals]
            return lambda record: any(part(record) for part in comparisons)
        case Compare(path, name, literal):
            return _compare(path, name, literal)


def _getter(path: Path) -> Callable[[Searchable], Any]:
    root, steps = path.root, path.steps
    if root in ("partition", "offset", "timestamp", "size"):
        if steps:
            raise InvalidFilter(f"{root} has no fields")
        return _FACTS[root]
    take = _ROOTS[root]

    def get(record: Searchable) -> Any:
        value = take(record)
        for step in steps:
            value = _step(value, step)
        return value

    return get if steps else take


def _step(value: Any, step: str | int) -> Any:
    if isinstance(value, dict):
        return value.get(str(step), MISSING)
    if isinstance(value, list) and isinstance(step, int) and -len(value) <= step < len(value):
        return value[step]
    return MISSING


_FACTS: Final[dict[str, Callable[[Searchable], Any]]] = {
    "partition": lambda record: record.partition,
    "offset": lambda record: record.offset,
    "timestamp": lambda record: record.timestamp_ms,
    "size": lambda record: len(record.key_bytes or b"") + len(record.value_bytes or b""),
}
_ROOTS: Final[dict[str, Callable[[Searchable], Any]]] = {
    "key": lambda record: record.key,
    "value": lambda record: record.value,
    "headers": lambda record: record.headers,
}


def _compare(path: Path, name: str, literal: Literal) -> Match:
    if path.root == "timestamp" and isinstance(literal, str):
        literal = _milliseconds(literal)
    get = _getter(path)
    if name in ("==", "!="):
        equal = _equal(get, literal)
        if not path.steps and path.root in ("key", "value") and isinstance(literal, str):
            equal = _equal_bytes(path.root, literal, equal)
        if name == "==":
            return equal
        # `!=` is false for a missing path, as every comparison is.
        return lambda record: get(record) is not MISSING and not equal(record)
    if name in _ORDER:
        return _ordered(get, _ORDER[name], literal)
    text = str(literal)
    if not path.steps and path.root in ("key", "value") and name == "contains":
        return _contains_in_bytes(path.root, text)
    return _text(get, name, text)


def _equal(get: Callable[[Searchable], Any], literal: Literal) -> Match:
    is_bool = isinstance(literal, bool)

    def equal(record: Searchable) -> bool:
        found = get(record)
        # Python has True == 1; in a filter, `== 1` does not match true.
        return bool(found == literal) and isinstance(found, bool) is is_bool

    return equal


def _equal_bytes(root: str, text: str, equal: Match) -> Match:
    """Compare the raw bytes too: the key `42` decodes to a number, but people write `key == "42"`."""
    wanted = text.encode()
    if root == "key":
        return lambda record: record.key_bytes == wanted or equal(record)
    return lambda record: record.value_bytes == wanted or equal(record)


def _ordered(
    get: Callable[[Searchable], Any], order: Callable[[Any, Any], bool], literal: Literal
) -> Match:
    is_text = isinstance(literal, str)
    if literal is None or isinstance(literal, bool):
        raise InvalidFilter("< <= > >= need a number or a string")

    def ordered(record: Searchable) -> bool:
        found = get(record)
        if isinstance(found, bool) or not isinstance(found, str if is_text else int | float):
            return False
        return order(found, literal)

    return ordered


def _contains_in_bytes(root: str, text: str) -> Match:
    """Search the raw bytes first; decode only text that JSON may have escaped (non-ASCII, quotes)."""
    needle = text.encode()
    is_plain = text.isascii() and not any(letter in '"\\/' or letter < " " for letter in text)
    decoded = _text(_ROOTS[root], "contains", text)

    def contains(record: Searchable) -> bool:
        data = record.key_bytes if root == "key" else record.value_bytes
        if data is None:
            return False
        if needle in data:
            return True
        return not is_plain and decoded(record)

    return contains


def _text(get: Callable[[Searchable], Any], name: str, wanted: str) -> Match:
    test: Callable[[str], bool]
    match name:
        case "contains":
            test = lambda text: wanted in text  # noqa: E731
        case "startswith":
            test = lambda text: text.startswith(wanted)  # noqa: E731
        case "endswith":
            test = lambda text: text.endswith(wanted)  # noqa: E731
        case _:
            pieces = wanted.split("*")
            test = lambda text: like(text, pieces)  # noqa: E731

    def matches(record: Searchable) -> bool:
        found = get(record)
        if isinstance(found, str):
            return test(found)
        if isinstance(found, list) and name == "contains":
            return any(
                item == wanted or (isinstance(item, str) and wanted in item) for item in found
            )
        if isinstance(found, dict) and name == "contains":
            return wanted in str(found)
        return False

    return matches


def like(text: str, pieces: list[str]) -> bool:
    """Whether `text` consists of the pieces with anything between them. Takes linear time."""
    if len(pieces) == 1:
        return text == pieces[0]
    first, *middle, last = pieces
    if not text.startswith(first):
        return False
    at = len(first)
    for piece in middle:
        at = text.find(piece, at)
        if at < 0:
            return False
        at += len(piece)
    return len(text) - len(last) >= at and text.endswith(last)


def _milliseconds(text: str) -> int:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise InvalidFilter(f"'{text}' is not an ISO time") from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return round(moment.timestamp() * 1000)
