"""Slow paths of the generated readers and writers: long varints, tagged fields, errors.

The generated code calls these functions for rare cases that it does not handle inline. Functions that
read raise ProtocolError, or IndexError at the end of the data, which `wire.codec.decode` converts.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any
from uuid import UUID

from kafkaesque.model.errors import ProtocolError
from kafkaesque.model.limits import ARRAY_ELEMENTS_MAX, TAGGED_FIELDS_MAX

STRING_LENGTH_MAX = 0x7FFF
"""Kafka rejects longer strings in every version, even where a varint allows more."""


class LocalProtocolError(ValueError):
    """A message of ours cannot be encoded in the requested version. This is a bug."""


def read_uvarint(data: memoryview, position: int) -> tuple[int, int]:
    """An unsigned varint of at most 32 bits, and the position after it."""
    # Unrolled: the length of a record batch usually takes two or three bytes.
    value = data[position]
    if value < 0x80:
        return value, position + 1
    byte = data[position + 1]
    value = value & 0x7F | (byte & 0x7F) << 7
    if byte < 0x80:
        return value, position + 2
    byte = data[position + 2]
    value |= (byte & 0x7F) << 14
    if byte < 0x80:
        return value, position + 3
    byte = data[position + 3]
    value |= (byte & 0x7F) << 21
    if byte < 0x80:
        return value, position + 4
    byte = data[position + 4]
    if byte > 0x0F:
        raise ProtocolError("varint longer than 32 bits")
    return value | byte << 28, position + 5


def uvarint(value: int) -> bytes:
    """`value` as an unsigned varint."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


UVARINTS = tuple(uvarint(value) for value in range(128))
"""All one-byte varints, precomputed."""

# Topic ids repeat and uuid.UUID() is slow. The cache is bounded, so a peer cannot grow it.
read_uuid = lru_cache(maxsize=4096)(lambda raw: UUID(bytes=raw))


def skip_tags(data: memoryview, position: int, end: int, budget: int) -> tuple[int, int]:
    """Skips a section of unknown tagged fields; returns (position, budget)."""
    count, position = read_uvarint(data, position)
    budget = charge_tags(count, budget)
    for _ in range(count):
        _tag, position = read_uvarint(data, position)
        size, position = read_uvarint(data, position)
        position += size
        if position > end:
            raise ProtocolError(f"tagged field of {size} bytes exceeds the data")
    return position, budget


def charge_tags(count: int, budget: int) -> int:
    """Returns the element budget left after `count` tagged fields."""
    if count > TAGGED_FIELDS_MAX:
        raise ProtocolError(f"{count} tagged fields in one struct, at most {TAGGED_FIELDS_MAX}")
    if count > budget:
        raise over_budget("tagged fields")
    return budget - count


def over_budget(field: str) -> ProtocolError:
    return ProtocolError(f"{field}: more than {ARRAY_ELEMENTS_MAX} elements in one message")


def bad_length(field: str, length: int, remaining: int) -> ProtocolError:
    """The error for a count or length that is negative, above its limit, or beyond the data."""
    if length < 0:
        return ProtocolError(f"{field}: null or negative length {length} is not allowed")
    return ProtocolError(f"{field}: length {length} does not fit in the {remaining} bytes left")


def bad_tag(field: str) -> ProtocolError:
    return ProtocolError(f"{field}: tagged field differs from its stated size")


def trailing(count: int) -> ProtocolError:
    return ProtocolError(f"{count} bytes after the end of the message")


def explain_unwritable(message: Any, version: int, path: str = "") -> str:
    """Describes the first field of `message` that `version` cannot encode (for error messages)."""
    for field in type(message).fields:
        if version not in field.versions:
            continue
        name = f"{path}{field.name}"
        value = getattr(message, field.name, None)
        if value is None:
            absent_tag = version in field.tagged and field.default is None
            if version not in field.nullable and not absent_tag:
                return f"{name} is null, which version {version} does not allow"
            continue
        items = value if field.is_array else [value]
        for index, item in enumerate(items):
            where = f"{name}[{index}]" if field.is_array else name
            if field.struct is not None:
                if found := explain_unwritable(item, version, where + "."):
                    return found
            elif field.is_array and item is None:
                return f"{where} is null"
    return ""
