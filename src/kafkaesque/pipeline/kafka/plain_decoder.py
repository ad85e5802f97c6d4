"""The decoder of `_decoder.c` in numpy and pyarrow, for machines where that was not built.

A Python loop only finds the records by their lengths. The fields are then read for all records at
once: varints as vectors, keys and values gathered by Arrow's kernels.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

Ints = np.ndarray[Any, np.dtype[np.int64]]
Bytes = np.ndarray[Any, np.dtype[np.uint8]]
Flags = np.ndarray[Any, np.dtype[np.bool_]]

_RECORD_SIZE_BYTES_MIN = 6
_VARINT_BYTES_MAX = {32: 5, 64: 10}
_INLINE_BYTES_MAX = 12
"""An Arrow binary view holds up to 12 bytes inline, and a reference to longer data."""


def decode(
    bodies: Sequence[tuple[memoryview, int, int, int, int, int]],
    from_offset: int,
    until_offset: int,
    with_headers: bool,
) -> tuple[Any, ...]:
    """As `_decoder.decode`: the buffers of all records with offsets in [from, until)."""
    records = _Records(bodies)
    kept = (records.offsets >= from_offset) & (records.offsets < until_offset)
    headers = records.headers()
    offsets, times_us = records.offsets[kept], records.times_us[kept]
    return (
        len(offsets),
        _string_buffers(records.gather(records.key, kept)),
        _string_buffers(records.gather(records.value, kept)),
        offsets.tobytes(),
        times_us.tobytes(),
        _header_buffers(kept, headers) if with_headers else None,
    )


class _Records:
    """The parsed fields of all bodies, concatenated. Raises ValueError if anything is malformed."""

    def __init__(self, bodies: Sequence[tuple[memoryview, int, int, int, int, int]]) -> None:
        joined = b"".join(body[0] for body in bodies)
        self._data: Bytes = np.frombuffer(joined, np.uint8)
        starts, self._ends = _all_bounds(joined, bodies)
        counts = [body[5] for body in bodies]
        base_offset, base_time, append_time, last_delta = (
            np.repeat(np.array([body[field] for body in bodies], np.int64), counts)
            for field in (1, 2, 3, 4)
        )
        time_deltas, position = self._varints(starts + 1, 64)
        deltas, position = self._varints(position, 32)
        first = np.zeros(len(deltas), bool)
        first[np.cumsum([0, *counts[:-1]], dtype=np.int64)[np.array(counts, int) > 0]] = True
        previous = np.where(first, -1, np.concatenate([deltas[:1], deltas[:-1]]))
        if (deltas <= previous).any() or (deltas > last_delta).any():
            raise ValueError("offset deltas do not ascend")
        self.offsets: Ints = base_offset + deltas
        self.times_us: Ints = np.where(append_time < 0, base_time + time_deltas, append_time) * 1000
        self.key = self._sized(position)
        self.value = self._sized(self.key[2])
        self._header_counts, self._headers_at = self._varints(self.value[2], 32)
        bare = self._header_counts == 0
        if (self._headers_at[bare] != self._ends[bare]).any():
            raise ValueError("bytes are left at the end of a record")

    def headers(self) -> dict[int, list[tuple[bytes, bytes | None]]]:
        """Headers by row, one record at a time: if many records have headers, build the C decoder."""
        return {
            int(row): self._read_headers(int(row)) for row in np.flatnonzero(self._header_counts)
        }

    def _varints(self, position: Ints, bits: int) -> tuple[Ints, Ints]:
        """The zigzag varint at each position, and the position after each."""
        value = np.zeros(len(position), np.uint64)
        unfinished = np.ones(len(position), bool)
        position = position.copy()
        for number in range(_VARINT_BYTES_MAX[bits]):
            if (position[unfinished] >= self._ends[unfinished]).any():
                raise ValueError("a number runs past its record")
            byte = self._data[np.minimum(position, len(self._data) - 1)].astype(np.uint64)
            more = (byte & np.uint64(0x7F)) << np.uint64(7 * number)
            value = np.where(unfinished, value | more, value)
            position = position + unfinished
            unfinished = unfinished & (byte >= 0x80)
            if not unfinished.any():
                break
        if unfinished.any() or (bits == 32 and (value >> np.uint64(32)).any()):
            raise ValueError("a number is too long")
        signed = (value >> np.uint64(1)).astype(np.int64) ^ -(value & np.uint64(1)).astype(np.int64)
        return signed, position

    def _sized(self, position: Ints) -> tuple[Ints, Ints, Ints]:
        """Sizes (-1 is null), where the bytes begin, and where the next field begins."""
        sizes, start = self._varints(position, 32)
        after = start + np.maximum(sizes, 0)
        if (sizes < -1).any() or (after > self._ends).any():
            raise ValueError("a key or value runs past its record")
        return sizes, start, after

    def gather(self, sized: tuple[Ints, Ints, Ints], kept: Flags) -> pa.Array:
        """The bytes as an Arrow array: views on the body that Arrow copies when it casts to binary."""
        sizes, starts = sized[0][kept], sized[1][kept]
        views = np.zeros((len(sizes), 4), np.int32)
        views[:, 0] = np.maximum(sizes, 0)
        long = sizes > _INLINE_BYTES_MAX
        views[long, 3] = starts[long]
        cells = views.view(np.uint8).reshape(len(sizes), 16)
        for column in range(_INLINE_BYTES_MAX):
            has = ~long & (sizes > column)
            cells[has, 4 + column] = self._data[starts[has] + column]
        for column in range(4):
            cells[long, 4 + column] = self._data[starts[long] + column]
        valid = np.packbits(sizes >= 0, bitorder="little")
        array = pa.Array.from_buffers(
            pa.binary_view(),
            len(sizes),
            [pa.py_buffer(valid), pa.py_buffer(views), pa.py_buffer(self._data)],
        )
        return array.cast(pa.binary())

    def _read_headers(self, row: int) -> list[tuple[bytes, bytes | None]]:
        position, end = int(self._headers_at[row]), int(self._ends[row])
        count = int(self._header_counts[row])
        found: list[tuple[bytes, bytes | None]] = []
        if not 0 <= count <= end - position:
            raise ValueError("headers run past their record")
        for _ in range(count):
            name, position = self._read_bytes(position, end)
            value, position = self._read_bytes(position, end)
            if name is None:
                raise ValueError("headers run past their record")
            found.append((name, value))
        if position != end:
            raise ValueError("bytes are left at the end of a record")
        return found

    def _read_bytes(self, position: int, end: int) -> tuple[bytes | None, int]:
        size_bytes, position = _varint(self._data, position, end)
        if size_bytes < -1 or position + max(size_bytes, 0) > end:
            raise ValueError("headers run past their record")
        if size_bytes < 0:
            return None, position
        return self._data[position : position + size_bytes].tobytes(), position + size_bytes


def _all_bounds(data: bytes, bodies: Sequence[Any]) -> tuple[Ints, Ints]:
    """The position of each record's attributes byte and of the record's end, over all bodies."""
    starts: list[int] = []
    ends: list[int] = []
    body_end = 0
    for body in bodies:
        position, body_end = body_end, body_end + len(body[0])
        for _ in range(body[5]):
            size_bytes, position = _varint(data, position, body_end)
            starts.append(position)
            position += size_bytes
            if size_bytes < _RECORD_SIZE_BYTES_MIN or position > body_end:
                raise ValueError(
                    f"batch at offset {body[1]}: a record runs past the end of its batch"
                )
            ends.append(position)
        if position != body_end:
            raise ValueError(f"batch at offset {body[1]}: bytes are left after the last record")
    return np.array(starts, np.int64), np.array(ends, np.int64)


def _varint(data: Any, position: int, end: int) -> tuple[int, int]:
    value = shift = 0
    while position < end and shift < 35:
        byte = int(data[position])
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), position
        shift += 7
    raise ValueError("a number runs past its record")


def _string_buffers(array: pa.Array) -> tuple[bytes, bytes, bytes | None]:
    """Offsets, data and validity. A cast or concatenated array starts at the start of its buffers."""
    validity, offsets, data = array.buffers()
    used = (len(array) + 1) * 4
    return (
        offsets.to_pybytes()[:used] if offsets is not None and len(array) else b"\0\0\0\0",
        data.to_pybytes() if data is not None else b"",
        validity.to_pybytes() if validity is not None and array.null_count else None,
    )


def _header_buffers(
    kept: Flags, by_row: dict[int, list[tuple[bytes, bytes | None]]]
) -> tuple[Any, ...]:
    rows = [by_row.get(int(row)) for row in np.flatnonzero(kept)]
    flat = [header for content in rows if content for header in content]
    sizes = np.array([len(content or ()) for content in rows], np.int32)
    present = np.array([content is not None for content in rows], bool)
    offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32)
    return (
        offsets.tobytes(),
        None if present.all() else np.packbits(present, bitorder="little").tobytes(),
        len(flat),
        _string_buffers(pa.array([name for name, _ in flat], pa.binary())),
        _string_buffers(pa.array([value for _, value in flat], pa.binary())),
    )
