"""Scans batches in a file. Pure: bytes are read through a function.

A batch that fails its checksum is never returned to a reader. The records of a batch that is only
skipped on the way to the requested offset are not checked; its header must be plausible.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from kafkaesque.model.errors import CorruptMessage, KafkaError
from kafkaesque.model.ids import Offset
from kafkaesque.model.limits import BATCH_SIZE_BYTES_MAX
from kafkaesque.records.batch import BatchHeader, read_header, verify_crc
from kafkaesque.records.crc32c import crc32c
from kafkaesque.records.layout import (
    BRIEF,
    CHECKSUMMED_POSITION,
    HEADER_SIZE_BYTES,
    LENGTH_OVERHEAD_BYTES,
    MAGIC,
)
from kafkaesque.records.native import compiled

Read = Callable[[int, int], bytes]
"""(size_bytes, position) -> bytes, fewer only at the end."""

ANY: Final = -1
"""In place of an offset or an epoch: unknown, not checked."""
HEADERS_CHUNK_BYTES: Final = 16 * 1024
VERIFY_CHUNK_BYTES: Final = 1024 * 1024


class Damage(NamedTuple):
    """The position of invalid bytes in the chunk, and what is wrong."""

    position: int
    reason: str


class Cut(NamedTuple):
    """The part of a chunk to return, [start, end), and how to continue."""

    start: int
    end: int
    next_offset: Offset
    """The offset after the last returned batch; the requested offset if there is none."""
    missing_bytes: int
    """If the batch at `start` does not end in the chunk: its whole size. Otherwise 0."""
    damage: Damage | None
    start_offset: int
    """The base offset of the batch at `start` if known, else ANY."""


@compiled(Cut, BATCH_SIZE_BYTES_MAX)
def cut_batches(
    chunk: bytes,
    offset: Offset,
    limit_offset: Offset,
    max_bytes: int,
    at_least_one: bool,
    epoch: int,
    start_offset: int,
) -> Cut:
    """Selects the whole, intact batches from the one with `offset` on, up to the limits.

    `chunk` starts with a batch at or before `offset`. With `at_least_one` the first batch is taken
    whatever its size. No checksum covers a batch's offset and epoch, so they are compared with the
    expected ones: the chunk begins at `start_offset`, each batch begins where the previous one ends,
    and all selected batches have `epoch`. ANY disables either check.
    """
    length, view = len(chunk), memoryview(chunk)
    start = position = 0
    next_offset = offset
    expected = start_offset
    while position + HEADER_SIZE_BYTES <= length:
        base_offset, size_bytes, found, magic, crc, delta = BRIEF.unpack_from(chunk, position)
        size_bytes += LENGTH_OVERHEAD_BYTES
        wrong = ""
        if magic != MAGIC or not HEADER_SIZE_BYTES <= size_bytes <= BATCH_SIZE_BYTES_MAX:
            wrong = "no batch header"
        elif delta < 0 or (position > start and base_offset < next_offset):
            wrong = "offsets go back"
        elif expected not in (ANY, base_offset):
            wrong = f"offset {base_offset} instead of {expected}"
        if wrong:
            return Cut(start, position, next_offset, 0, Damage(position, wrong), start_offset)
        end, end_offset = position + size_bytes, Offset(base_offset + delta + 1)
        if expected != ANY:
            expected = end_offset
        if end_offset <= offset:
            start = position = end
            start_offset = expected
            continue
        if base_offset >= limit_offset:
            break
        if end - start > max_bytes and not (at_least_one and position == start):
            break
        if end > length:
            missing_bytes = size_bytes if position == start else 0
            return Cut(start, position, next_offset, missing_bytes, None, start_offset)
        if epoch not in (ANY, found):
            wrong = f"leader epoch {found} instead of {epoch}"
        elif crc32c(view[position + CHECKSUMMED_POSITION : end]) != crc:
            wrong = "checksum mismatch"
        if wrong:
            return Cut(start, position, next_offset, 0, Damage(position, wrong), start_offset)
        next_offset = end_offset
        position = end
    else:
        if position == start:
            return Cut(start, start, next_offset, HEADER_SIZE_BYTES, None, start_offset)
    return Cut(start, position, next_offset, 0, None, start_offset)


def iter_headers(read: Read, position: int, end: int) -> Iterator[tuple[int, BatchHeader]]:
    """Position and header of each batch in [position, end). Does not read records.

    Raises CorruptMessage where there is no valid header, with the position as its second argument.
    """
    chunk, chunk_position = b"", position
    while position < end:
        if position + HEADER_SIZE_BYTES > chunk_position + len(chunk):
            chunk = read(min(HEADERS_CHUNK_BYTES, end - position), position)
            chunk_position = position
        header = _header_at(chunk, position - chunk_position, position)
        yield position, header
        position += header.size_bytes


def iter_verified(read: Read, position: int, end: int) -> Iterator[tuple[int, BatchHeader]]:
    """Position and header of each batch in [position, end), with verified checksums.

    Raises CorruptMessage at the first invalid one, with the position as its second argument.
    """
    chunk, chunk_position = b"", position
    while position < end:
        at = position - chunk_position
        if at + HEADER_SIZE_BYTES > len(chunk):
            chunk = read(min(VERIFY_CHUNK_BYTES, end - position), position)
            chunk_position, at = position, 0
        header = _header_at(chunk, at, position)
        if at + header.size_bytes > len(chunk):
            wanted = min(max(VERIFY_CHUNK_BYTES, header.size_bytes), end - position)
            chunk = read(wanted, position)
            chunk_position, at = position, 0
        try:
            verify_crc(chunk, header, at)
        except CorruptMessage as error:
            raise CorruptMessage(error.args[0], position) from None
        yield position, header
        position += header.size_bytes


def _header_at(chunk: bytes, at: int, position: int) -> BatchHeader:
    try:
        return read_header(chunk, at)
    except KafkaError as error:
        raise CorruptMessage(error.args[0], position) from None
