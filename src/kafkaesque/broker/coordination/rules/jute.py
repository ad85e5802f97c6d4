"""Jute, ZooKeeper's serialisation: big-endian numbers, counted strings, buffers and vectors.

A reader never reads beyond its bytes: a length or count is checked against the remaining bytes before
it is used. It raises ProtocolError and nothing else.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import TypeVar

from kafkaesque.model.errors import ProtocolError

T = TypeVar("T")

_INT = struct.Struct(">i")
_LONG = struct.Struct(">q")

VECTOR_ELEMENTS_MAX = 100_000
"""The most elements of a vector: bounds the cost of a hostile frame of empty strings."""


class JuteReader:
    """Reads consecutive values from `data`."""

    __slots__ = ("_data", "_position")

    def __init__(self, data: bytes, position: int = 0) -> None:
        self._data = data
        self._position = position

    @property
    def remaining_bytes(self) -> int:
        return len(self._data) - self._position

    def _take(self, size_bytes: int) -> int:
        """Consumes `size_bytes` and returns their position."""
        position = self._position
        end = position + size_bytes
        if end > len(self._data):
            raise ProtocolError(
                f"{size_bytes} bytes expected at {position}, {self.remaining_bytes} remain"
            )
        self._position = end
        return position

    def boolean(self) -> bool:
        return self._data[self._take(1)] != 0

    def int32(self) -> int:
        value: int = _INT.unpack_from(self._data, self._take(4))[0]
        return value

    def int64(self) -> int:
        value: int = _LONG.unpack_from(self._data, self._take(8))[0]
        return value

    def buffer(self) -> bytes | None:
        """Counted bytes; a count of -1 is Java's null."""
        size_bytes = self.int32()
        if size_bytes == -1:
            return None
        if size_bytes < 0:
            raise ProtocolError(f"a buffer of {size_bytes} bytes")
        position = self._take(size_bytes)
        return self._data[position : position + size_bytes]

    def optional_string(self) -> str | None:
        """Bytes that are not UTF-8 become U+FFFD as in Java, which is invalid in a path."""
        data = self.buffer()
        return None if data is None else data.decode(errors="replace")

    def string(self) -> str:
        value = self.optional_string()
        if value is None:
            raise ProtocolError("null instead of a string")
        return value

    def vector(self, element: Callable[[], T], element_bytes_min: int) -> list[T]:
        """Counted elements, none smaller than `element_bytes_min`; null is read as empty."""
        count = self.int32()
        if count == -1:
            return []
        if (
            not 0 <= count <= VECTOR_ELEMENTS_MAX
            or count * element_bytes_min > self.remaining_bytes
        ):
            raise ProtocolError(f"a vector of {count} elements in {self.remaining_bytes} bytes")
        return [element() for _ in range(count)]


class JuteWriter:
    """Collects values into one byte string."""

    __slots__ = ("_parts",)

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def raw(self, data: bytes) -> None:
        """Bytes that are serialised already."""
        self._parts.append(data)

    def boolean(self, value: bool) -> None:
        self._parts.append(b"\x01" if value else b"\x00")

    def int32(self, value: int) -> None:
        self._parts.append(_INT.pack(value))

    def int64(self, value: int) -> None:
        self._parts.append(_LONG.pack(value))

    def buffer(self, value: bytes | None) -> None:
        if value is None:
            self._parts.append(_INT.pack(-1))
        else:
            self._parts.append(_INT.pack(len(value)))
            self._parts.append(value)

    def string(self, value: str | None) -> None:
        self.buffer(None if value is None else value.encode())

    def vector(self, values: Sequence[T], element: Callable[[T], None]) -> None:
        self.int32(len(values))
        for value in values:
            element(value)

    def getvalue(self) -> bytes:
        return b"".join(self._parts)
