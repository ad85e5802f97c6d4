"""A schemaless Protobuf decoder: fields by number, nested messages where the bytes parse as one.

https://protobuf.dev/programming-guides/encoding. The type of a length-delimited field is a guess: text
if it is printable, a message if it parses as one, and hex otherwise.
"""

from __future__ import annotations

import struct
from typing import Any, Final

DEPTH_MAX: Final = 16
FIELDS_MAX: Final = 10_000
FIELD_NUMBER_MAX: Final = (1 << 29) - 1


class NotProtobuf(Exception):
    """The bytes are not a valid message."""


def read_message(data: bytes, depth: int = 0) -> dict[str, Any]:
    """Fields by number; repeated fields are lists. Raises NotProtobuf if bytes are left or missing."""
    if depth > DEPTH_MAX:
        raise NotProtobuf("nested too deeply")
    fields: dict[str, Any] = {}
    position = count = 0
    while position < len(data):
        tag, position = _varint(data, position)
        number, wire_type = tag >> 3, tag & 7
        if not 1 <= number <= FIELD_NUMBER_MAX:
            raise NotProtobuf("field number out of range")
        value, position = _field(data, position, wire_type, depth)
        name = str(number)
        if name not in fields:
            fields[name] = value
        elif isinstance(fields[name], _Repeated):
            fields[name].append(value)
        else:
            fields[name] = _Repeated([fields[name], value])
        count += 1
        if count > FIELDS_MAX:
            raise NotProtobuf("too many fields")
    return fields


class _Repeated(list[Any]):
    """Values of a repeated field; a separate class, to distinguish it from a single value."""


def _field(data: bytes, position: int, wire_type: int, depth: int) -> tuple[Any, int]:
    if wire_type == 0:
        return _varint(data, position)
    if wire_type == 1:
        return _fixed(data, position, "<q", "<d")
    if wire_type == 5:
        return _fixed(data, position, "<i", "<f")
    if wire_type == 2:
        size, position = _varint(data, position)
        end = position + size
        if end > len(data):
            raise NotProtobuf("field is longer than the message")
        return _bytes(data[position:end], depth), end
    raise NotProtobuf(f"unknown wire type {wire_type}")


def _varint(data: bytes, position: int) -> tuple[int, int]:
    result = 0
    for shift in range(0, 70, 7):
        if position >= len(data):
            raise NotProtobuf("unexpected end")
        byte = data[position]
        position += 1
        result |= (byte & 0x7F) << shift
        if byte < 0x80:
            return result, position
    raise NotProtobuf("varint is too long")


def _fixed(data: bytes, position: int, integer: str, real: str) -> tuple[Any, int]:
    """A float if its magnitude is plausible for one, otherwise an integer."""
    size = struct.calcsize(integer)
    piece = data[position : position + size]
    if len(piece) < size:
        raise NotProtobuf("unexpected end")
    value: float = struct.unpack(real, piece)[0]
    if value == 0 or 1e-9 < abs(value) < 1e15:
        return value, position + size
    return struct.unpack(integer, piece)[0], position + size


def _bytes(data: bytes, depth: int) -> Any:
    try:
        text = data.decode()
    except UnicodeDecodeError:
        text = None
    if text is not None and all(letter.isprintable() or letter in "\r\n\t" for letter in text):
        return text
    try:
        return read_message(data, depth + 1)
    except NotProtobuf:
        return data.hex()
