"""The field types of records in internal topics: bounds-checked reading, and writing.

For the formats of `__consumer_offsets` and `__transaction_state`, whose rules must not import the wire
codec. The formats themselves are defined there.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from kafkaesque.model.errors import CorruptMessage, check

INT16: Final = struct.Struct(">h")
INT32: Final = struct.Struct(">i")
INT64: Final = struct.Struct(">q")

_LENGTH_MAX_INT16: Final = 2**15 - 1
_VARINT_BYTES_MAX: Final = 5


class LogRecord(NamedTuple):
    """A record of an internal topic. Value None is a tombstone."""

    key: bytes
    value: bytes | None


class Reader:
    """Reads fields in order. Any malformed input raises CorruptMessage."""

    __slots__ = ("_data", "_position", "flexible")

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0
        self.flexible = False
        """Compact lengths and tagged fields (KIP-482)."""

    def int16(self) -> int:
        return self._fixed(INT16)

    def int32(self) -> int:
        return self._fixed(INT32)

    def int64(self) -> int:
        return self._fixed(INT64)

    def string(self) -> str:
        text = self.nullable_string()
        if text is None:
            raise CorruptMessage("a string of a record is null")
        return text

    def nullable_string(self) -> str | None:
        length = self.varint() - 1 if self.flexible else self.int16()
        if length == -1:
            return None
        try:
            return self.take(length).decode()
        except UnicodeDecodeError as error:
            raise CorruptMessage(f"a string of a record is not UTF-8: {error}") from error

    def data(self) -> bytes:
        return self.take(self.varint() - 1 if self.flexible else self.int32())

    def count(self, element_bytes_min: int) -> int:
        """The element count of an array. Rejected before allocation if that many cannot follow."""
        count = self.nullable_count(element_bytes_min)
        if count is None:
            raise CorruptMessage("an array of a record is null")
        return count

    def nullable_count(self, element_bytes_min: int) -> int | None:
        count = self.varint() - 1 if self.flexible else self.int32()
        if count == -1:
            return None
        if count < 0 or count * element_bytes_min > len(self._data) - self._position:
            raise CorruptMessage(f"an array of a record claims {count} elements")
        return count

    def tagged_fields(self) -> dict[int, bytes]:
        """Every tag with its bytes; empty if the version is not flexible."""
        if not self.flexible:
            return {}
        fields = {}
        for _ in range(self.varint()):
            tag = self.varint()
            fields[tag] = self.take(self.varint())
        return fields

    def varint(self) -> int:
        value = 0
        for number in range(_VARINT_BYTES_MAX):
            byte = self.take(1)[0]
            value |= (byte & 0x7F) << (7 * number)
            if byte < 0x80:
                return value
        raise CorruptMessage("a length of a record has more than 5 bytes")

    def take(self, length: int) -> bytes:
        end = self._position + length
        if length < 0 or end > len(self._data):
            raise CorruptMessage(
                f"a record of {len(self._data)} bytes ends inside a field of {length}"
            )
        taken = self._data[self._position : end]
        self._position = end
        return taken

    def _fixed(self, layout: struct.Struct) -> int:
        (value,) = layout.unpack(self.take(layout.size))
        return int(value)


def varint(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def string(text: str) -> bytes:
    encoded = text.encode()
    check(len(encoded) <= _LENGTH_MAX_INT16, "a string of a record is longer than 32767")
    return INT16.pack(len(encoded)) + encoded


def nullable_string(text: str | None) -> bytes:
    return INT16.pack(-1) if text is None else string(text)


def compact_string(text: str) -> bytes:
    encoded = text.encode()
    return varint(len(encoded) + 1) + encoded


def data(content: bytes) -> bytes:
    return INT32.pack(len(content)) + content
