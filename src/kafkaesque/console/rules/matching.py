"""A filter's tree to a function over records. Closures, made once; a record is decoded only if asked.

What can be decided on the raw bytes is: `value contains "x"` never decodes a value that lacks the
bytes of x, which is what lets a search pass over a million records in seconds.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Final, Protocol

from kafkaesque.console.rules.expression import (
    Both,
    Compare,
    Either,
    Exists,
    InvalidFilter,
    Literal,
    Node,
    Not,
    OneOf,
    Path,
)


class Searchable(Protocol):
    """What a filter may ask of a record. Data is decoded when first asked for."""

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
    match node:
        case Both(parts):
            both = [compile_filter(part) for part in parts]
            return lambda record: all(part(record) for part in both)
        case Either(parts):
            either = [compile_filter(part) for part in parts]
            return lambda record: any(part(record) for part in either)
        case Not(inner):
            negated = compile_filter(inner)
            return lambda record: not negated(record)
        case Exists(path):
            get = _getter(path)
            return lambda record: get(record) is not MISSING
        case OneOf(path, literals):
            parts_of = [_compare(path, "==", literal) for literal in literals]
            return lambda record: any(part(record) for part in parts_of)
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
        # A path that leads nowhere is not different either: `!=` speaks of what is there.
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
        # In Python True == 1; in a filter `== 1` does not mean true.
        return bool(found == literal) and isinstance(found, bool) is is_bool

    return equal


def _equal_bytes(root: str, text: str, equal: Match) -> Match:
    """A key of the bytes `42` decodes to a number, yet `key == "42"` is how people ask for it."""
    wanted = text.encode()
    if root == "key":
        return lambda record: record.key_bytes == wanted or equal(record)
    return lambda record: record.value_bytes == wanted or equal(record)


def _ordered(
    get: Callable[[Searchable], Any], order: Callable[[Any, Any], bool], literal: Literal
) -> Match:
    is_text = isinstance(literal, str)
    if literal is None or isinstance(literal, bool):
        raise InvalidFilter("only numbers and texts have an order")

    def ordered(record: Searchable) -> bool:
        found = get(record)
        if isinstance(found, bool) or not isinstance(found, str if is_text else int | float):
            return False
        return order(found, literal)

    return ordered


def _contains_in_bytes(root: str, text: str) -> Match:
    """Looks at the bytes first. Non-ASCII text may stand escaped in JSON, so there it must decode."""
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
    """Whether `text` is the pieces with anything between them; linear, unlike a regular expression."""
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
