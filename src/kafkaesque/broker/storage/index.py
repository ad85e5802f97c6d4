"""The sparse index of one segment: maps offsets and timestamps to positions.

An entry describes a batch: the distance of its base offset from the segment's, its position, and
the largest timestamp of all batches before it. Entries ascend in all three, so the same file serves
both searches: a record at or after time T cannot be before the last entry whose "largest timestamp
before" is below T. The first batch has no entry; position 0 is implied.

New entries are kept in memory and written to the file when the log is synced (`flush`), so an index
uses memory only for what is not synced. The file is not fsynced: each entry has a checksum, and
missing or damaged entries are rebuilt from the segment.
"""

from __future__ import annotations

import struct
import threading
import zlib
from array import array
from bisect import bisect_left
from collections.abc import Sequence
from typing import Final

from kafkaesque.broker.storage.open_files import OpenFile, OpenFiles

_FACTS: Final = struct.Struct(">IIq")
_CHECKSUM: Final = struct.Struct(">I")
ENTRY_SIZE_BYTES: Final = _FACTS.size + _CHECKSUM.size
_PAGE_ENTRIES: Final = 200
"""With at most this many candidates a search reads them all at once instead of one by one."""

_NUMBERS: Final = 3
"""Numbers per entry."""
_OFFSET_DELTA: Final = 0
_TIMESTAMP: Final = 2

Entry = tuple[int, int, int]
"""Offset delta, position, largest timestamp before."""


class IndexDamaged(Exception):
    """The index file does not contain what was written and must be rebuilt from the segment."""


class SparseIndex:
    """Entries in a file (`flushed_count` of them) followed by entries in memory."""

    __slots__ = ("_tail", "count", "file", "flushed_count")

    def __init__(self, file: OpenFile, flushed_count: int = 0) -> None:
        self.file = file
        self.flushed_count = flushed_count
        self.count = flushed_count
        """The number of entries, in the file and in memory."""
        self._tail: array[int] | None = None
        """Three numbers for each entry that is not in the file yet."""

    @property
    def flushed_size_bytes(self) -> int:
        return self.flushed_count * ENTRY_SIZE_BYTES

    def append(self, offset_delta: int, position: int, timestamp_before: int) -> None:
        tail = self._tail
        if tail is None:
            tail = self._tail = array("q")
        tail.extend((offset_delta, position, timestamp_before))
        self.count += 1

    def floor_offset(self, files: OpenFiles, offset_delta: int) -> Entry:
        """The last entry at or below `offset_delta`."""
        return self._last_below(files, _OFFSET_DELTA, offset_delta + 1)

    def floor_offset_in_memory(self, offset_delta: int) -> Entry | None:
        """Like `floor_offset`, without reading the file; None if that needs the file."""
        tail = self._tail
        if tail and tail[_OFFSET_DELTA] <= offset_delta:
            numbers = range(_OFFSET_DELTA, len(tail), _NUMBERS)
            at = (bisect_left(numbers, offset_delta + 1, key=tail.__getitem__) - 1) * _NUMBERS
            return tail[at], tail[at + 1], tail[at + 2]
        return None if self.flushed_count else (0, 0, -1)

    def floor_time(self, files: OpenFiles, timestamp: int) -> Entry:
        """The last entry with no record at or after `timestamp` before it."""
        return self._last_below(files, _TIMESTAMP, timestamp)

    def flush(self, files: OpenFiles, lock: threading.Lock) -> None:
        """Moves the entries in memory to the file. `lock` guards them against `append`.

        Only one thread may flush at a time; another thread may search and append meanwhile.
        """
        with lock:
            taken = self._tail[:] if self._tail else ()
            position = self.flushed_count * ENTRY_SIZE_BYTES
        if not taken:
            return
        files.pwrite(self.file, _encode(taken), position)
        with lock:
            if self._tail is not None:
                del self._tail[: len(taken)]
                self._tail = self._tail or None
            self.flushed_count += len(taken) // _NUMBERS

    def _last_below(self, files: OpenFiles, field: int, bound: int) -> Entry:
        """The last entry whose `field` is below `bound`, or the implied first one."""
        count = self._count_below(files, field, bound)
        if count == 0:
            return (0, 0, -1)
        if count > self.flushed_count and self._tail is not None:
            at = (count - 1 - self.flushed_count) * _NUMBERS
            offset_delta, position, timestamp_before = self._tail[at : at + _NUMBERS]
            return offset_delta, position, timestamp_before
        return _entry(self._read(files, count - 1, count), 0)

    def _count_below(self, files: OpenFiles, field: int, bound: int) -> int:
        """How many entries have `field` below `bound`; they come first."""
        tail = self._tail
        if tail and tail[field] < bound:
            numbers = range(field, len(tail), _NUMBERS)
            return self.flushed_count + bisect_left(numbers, bound, key=tail.__getitem__)
        low, high = 0, self.flushed_count
        while high - low > _PAGE_ENTRIES:
            middle = (low + high) // 2
            if _entry(self._read(files, middle, middle + 1), 0)[field] < bound:
                low = middle + 1
            else:
                high = middle
        return low + _bisect(self._read(files, low, high), field, bound)

    def _read(self, files: OpenFiles, first: int, end: int) -> bytes:
        if first == end:
            return b""
        size_bytes = (end - first) * ENTRY_SIZE_BYTES
        try:
            data = files.pread(self.file, size_bytes, first * ENTRY_SIZE_BYTES)
        except FileNotFoundError:
            raise IndexDamaged(f"{self.file.path} is missing") from None
        if len(data) != size_bytes:
            raise IndexDamaged(f"{self.file.path} ends before entry {end - 1}")
        return data


def _encode(numbers: Sequence[int]) -> bytes:
    """The file format of entries."""
    data = bytearray()
    for at in range(0, len(numbers), _NUMBERS):
        facts = _FACTS.pack(*numbers[at : at + _NUMBERS])
        data += facts + _CHECKSUM.pack(zlib.crc32(facts))
    return bytes(data)


def _bisect(entries: bytes, field: int, bound: int) -> int:
    low, high = 0, len(entries) // ENTRY_SIZE_BYTES
    while low < high:
        middle = (low + high) // 2
        if _entry(entries, middle)[field] < bound:
            low = middle + 1
        else:
            high = middle
    return low


def _entry(entries: bytes, number: int) -> Entry:
    position = number * ENTRY_SIZE_BYTES
    facts = entries[position : position + _FACTS.size]
    (checksum,) = _CHECKSUM.unpack_from(entries, position + _FACTS.size)
    if zlib.crc32(facts) != checksum:
        raise IndexDamaged(f"entry {number} fails its checksum")
    offset_delta, at, timestamp_before = _FACTS.unpack(facts)
    return offset_delta, at, timestamp_before
