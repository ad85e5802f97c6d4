"""Records as a test writes and reads them: plain values in, small typed objects out.

This module defines what a plain value means and whether a record matches an expectation. `client.py`
sends and reads records, `namespace.py` waits for them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypedDict

Content = str | bytes | None | Mapping[str, Any] | Sequence[Any] | int | float | bool
"""str and bytes are used as they are, None is Kafka's null; anything else is written as JSON."""
Headers = Mapping[str, str | bytes | None] | Sequence[tuple[str, str | bytes | None]]


class RecordFields(TypedDict, total=False):
    """All fields of a record. Missing fields are left to the producer, or not compared."""

    key: Content
    value: Content
    headers: Headers
    partition: int
    timestamp: int
    """Milliseconds since the Unix epoch."""


RecordSpec = str | bytes | tuple[Content, Content] | RecordFields
"""A value; (key, value); or a dict of key, value, headers, partition, timestamp."""

_FIELDS = frozenset(RecordFields.__annotations__)


@dataclass(frozen=True, slots=True)
class Received:
    """A record as stored in the log."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    timestamp_ms: int | None = None

    @property
    def text(self) -> str | None:
        """The value as UTF-8."""
        return None if self.value is None else self.value.decode()

    @property
    def key_text(self) -> str | None:
        """The key as UTF-8."""
        return None if self.key is None else self.key.decode()

    @property
    def json(self) -> Any:
        """The value, parsed as JSON."""
        return None if self.value is None else json.loads(self.value)


def fields_of(spec: RecordSpec) -> RecordFields:
    """The fields of `spec`. TypeError or ValueError if it is not a record."""
    if isinstance(spec, str | bytes):
        return {"value": spec}
    if isinstance(spec, tuple):
        if len(spec) != 2:
            raise ValueError(f"a tuple is a record's (key, value), not {spec!r}")
        return {"key": spec[0], "value": spec[1]}
    if isinstance(spec, dict):
        if unknown := spec.keys() - _FIELDS:
            raise ValueError(
                f"a record has {', '.join(sorted(_FIELDS))}, not {', '.join(sorted(unknown))}; "
                'a value that is a dict itself goes in as {"value": ...} or (key, value)'
            )
        return spec
    raise TypeError(f"a record is a str, bytes, (key, value) or dict, not {spec!r}")


def content_bytes(content: Content) -> bytes | None:
    """The bytes of a key or value."""
    if content is None or isinstance(content, bytes):
        return content
    if isinstance(content, str):
        return content.encode()
    return json.dumps(content, separators=(",", ":")).encode()


def header_pairs(headers: Headers) -> list[tuple[str, bytes | None]]:
    """Headers in order, with values as bytes."""
    pairs = headers.items() if isinstance(headers, Mapping) else headers
    return [(name, content_bytes(value)) for name, value in pairs]


def matches(fields: RecordFields, record: Received) -> bool:
    """Whether `record` has all the given fields. Headers are compared as a whole, in order."""
    return (
        ("key" not in fields or _same(fields["key"], record.key))
        and ("value" not in fields or _same(fields["value"], record.value))
        and ("headers" not in fields or tuple(header_pairs(fields["headers"])) == record.headers)
        and fields.get("partition", record.partition) == record.partition
        and fields.get("timestamp", record.timestamp_ms) == record.timestamp_ms
    )


def _same(expected: Content, actual: bytes | None) -> bool:
    if expected is None or actual is None or isinstance(expected, str | bytes):
        return content_bytes(expected) == actual
    try:
        # Compared after parsing: spaces and the order of keys do not matter.
        return bool(json.loads(actual) == json.loads(content_bytes(expected) or b""))
    except ValueError:
        return False
