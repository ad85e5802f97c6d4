"""The entry file of a segment: the offset and position of each of its batches.

An entry has 8 bytes: the batch's offset relative to the segment's base offset, and its position in
the segment file. A batch ends where the next one begins. Entries are kept in memory and written in
blocks of 128. At least the last 128 stay in memory, so an append needs no system call and neither
do the most frequent lookups. Each block contains its number, its end position and a checksum. When
the segment is synced, the partial last block is written too, so that after a crash the positions of
all durable batches are known: without them, a damaged header would hide all batches after it.

The file is not synced as it grows: missing entries are read again from the headers of the segment,
which is authoritative. But an entry must never be wrong, whatever a crash undoes. So the file is
durably *cut* before the segment is.
"""

from __future__ import annotations

import contextlib
import logging
import struct
import zlib
from array import array
from bisect import bisect_right
from typing import Final, NamedTuple

from kafkaesque.broker.raft.types import LogIndex
from kafkaesque.broker.storage.open_files import OpenFile, OpenFiles
from kafkaesque.model.ids import Offset

_log = logging.getLogger("kafkaesque.broker.replication")

_SUFFIX: Final = ".entries"
BLOCK_ENTRIES: Final = 128
_ENTRY_SIZE_BYTES: Final = 8
_HEADER: Final = struct.Struct("=IIqIIq")
"""Magic, entry count, index of the segment's first batch, block number, and end position and end
offset of the last batch. In native byte order, like the entries; the magic detects a foreign
order."""
_CHECKSUM: Final = struct.Struct("=I")
_MAGIC: Final = 0x4B514531
_PREFIX_SIZE_BYTES: Final = _HEADER.size + _CHECKSUM.size
_SLOT_SIZE_BYTES: Final = _PREFIX_SIZE_BYTES + BLOCK_ENTRIES * _ENTRY_SIZE_BYTES
_POSITION_BITS: Final = 32
POSITION_MASK: Final = (1 << _POSITION_BITS) - 1


class EntriesDamaged(Exception):
    """The file does not hold what was written. Its entries must be rebuilt from the segment."""


class Run(NamedTuple):
    """Consecutive batches and the end of the last one."""

    packed: array[int]
    """Offset delta in the high half, position in the low half."""
    end_position: int
    end_offset: Offset


class _Block(NamedTuple):
    first_index: LogIndex
    run: Run


class EntryIndex:
    """The batches of one segment, numbered from 0."""

    __slots__ = (
        "base_offset",
        "end_offset",
        "end_position",
        "file",
        "first_index",
        "saved_count",
        "tail",
        "tail_number",
    )

    def __init__(self, directory: str, base_offset: Offset, first_index: LogIndex) -> None:
        self.base_offset = base_offset
        self.first_index = first_index
        """The index of batch 0. Meaningless while there are no batches."""
        self.file = OpenFile(f"{directory}/{base_offset:020d}{_SUFFIX}")
        self.tail: array[int] = array("Q")
        """Entries in memory. Some may also be in the file."""
        self.tail_number = 0
        """The number of the tail's first batch, a multiple of BLOCK_ENTRIES. All earlier entries
        are in the file."""
        self.end_position = 0
        self.end_offset = base_offset
        self.saved_count = 0
        """The number of batches in the file, provided that the file is intact."""

    @property
    def count(self) -> int:
        return self.tail_number + len(self.tail)

    def append(self, size_bytes: int, end_offset: Offset) -> int:
        """Adds the next batch and returns its position."""
        position = self.end_position
        self.tail.append((self.end_offset - self.base_offset) << _POSITION_BITS | position)
        self.end_position = position + size_bytes
        self.end_offset = end_offset
        return position

    def base_of(self, files: OpenFiles, number: int) -> Offset:
        """Returns the base offset of batch `number`, or the end offset if it would be the next
        batch."""
        if number == self.count:
            return self.end_offset
        return self.offset_of(self.run_from(files, number).packed[0])

    def offset_of(self, packed: int) -> Offset:
        return Offset(self.base_offset + (packed >> _POSITION_BITS))

    def run_from(self, files: OpenFiles, number: int) -> Run:
        """Returns batches from `number` on: at least one, up to the end of its block or of the
        tail. Raises EntriesDamaged."""
        if number >= self.tail_number:
            tail = self.tail[number - self.tail_number :]
            return Run(tail, self.end_position, self.end_offset)
        packed, end_position, end_offset = self._full_block(files, number // BLOCK_ENTRIES).run
        return Run(packed[number % BLOCK_ENTRIES :], end_position, end_offset)

    def find(self, files: OpenFiles, offset: Offset) -> int:
        """Returns the number of the batch that contains `offset`. Requires base_offset <= offset <
        end_offset. Raises EntriesDamaged."""
        wanted = (offset - self.base_offset) << _POSITION_BITS | POSITION_MASK
        if self.tail and self.tail[0] <= wanted:
            return self.tail_number + bisect_right(self.tail, wanted) - 1
        low, high = 0, self.tail_number // BLOCK_ENTRIES
        while high - low > 1:
            middle = (low + high) // 2
            if self._full_block(files, middle).run.packed[0] <= wanted:
                low = middle
            else:
                high = middle
        packed = self._full_block(files, low).run.packed
        return low * BLOCK_ENTRIES + bisect_right(packed, wanted) - 1

    # -- the file --------------------------------------------------------------------------------

    @classmethod
    def load(
        cls, files: OpenFiles, directory: str, base_offset: Offset, limit: tuple[int, Offset]
    ) -> EntryIndex | None:
        """Loads the entries up to `limit` (position and offset), possibly fewer than there are
        batches; None if no block is usable."""
        index = cls(directory, base_offset, LogIndex(0))
        slots = -(-files.size_bytes(index.file) // _SLOT_SIZE_BYTES)
        for number in reversed(range(slots)):
            with contextlib.suppress(EntriesDamaged):
                block = index._block(files, number)
                if block.run.end_position <= limit[0] and block.run.end_offset <= limit[1]:
                    index._take(number, block)
                    if number < slots - 1:
                        index._shorten(files)
                    return index
        return None

    def _take(self, number: int, block: _Block) -> None:
        """Takes over a block as the last one."""
        packed, self.end_position, self.end_offset = block.run
        self.first_index = block.first_index
        is_full = len(packed) == BLOCK_ENTRIES
        self.tail_number = (number + is_full) * BLOCK_ENTRIES
        self.tail = array("Q") if is_full else packed

    def flush(self, files: OpenFiles) -> None:
        """Writes the full blocks of the tail, and keeps only the last of them in memory."""
        count = len(self.tail) // BLOCK_ENTRIES - 1
        if count > 0 and self._write(files, count):
            del self.tail[: count * BLOCK_ENTRIES]
            self.tail_number += count * BLOCK_ENTRIES

    def save(self, files: OpenFiles) -> None:
        """Writes the whole tail and keeps it in memory."""
        count = self.count
        if count != self.saved_count and self._write(files, -(-len(self.tail) // BLOCK_ENTRIES)):
            self.saved_count = count

    def seal(self, files: OpenFiles) -> None:
        """Writes the whole tail and keeps only its partial block in memory."""
        count = len(self.tail) // BLOCK_ENTRIES
        is_partial = len(self.tail) > count * BLOCK_ENTRIES
        if self.tail and self._write(files, count + is_partial):
            del self.tail[: count * BLOCK_ENTRIES]
            self.tail_number += count * BLOCK_ENTRIES

    def cut(self, files: OpenFiles, count: int) -> None:
        """Durably keeps only the first `count` batches. Raises OSError, EntriesDamaged."""
        end = self.run_from(files, count).packed[0]
        if count < self.tail_number:
            number = count // BLOCK_ENTRIES
            self.tail = self._full_block(files, number).run.packed[: count % BLOCK_ENTRIES]
            self.tail_number = number * BLOCK_ENTRIES
        else:
            del self.tail[count - self.tail_number :]
        self.end_position = end & POSITION_MASK
        self.end_offset = self.offset_of(end)
        self.saved_count = self.tail_number
        self._shorten(files)

    def delete(self, files: OpenFiles) -> None:
        """Deletes the file, after durably emptying it: its name may come back after a crash, next
        to another segment with the same base offset. Raises OSError."""
        if files.calls.exists(self.file.path):
            files.truncate(self.file, 0)
            files.sync(self.file)
            files.forget(self.file)
            files.calls.unlink(self.file.path)

    def restart(self, files: OpenFiles, first_index: LogIndex) -> None:
        """Durably forgets all batches. Raises OSError."""
        self.delete(files)
        self.first_index = first_index
        self.tail = array("Q")
        self.tail_number = self.end_position = self.saved_count = 0
        self.end_offset = self.base_offset

    def discard(self, files: OpenFiles) -> None:
        """Deletes the file of a segment that will never be written again."""
        files.forget(self.file)
        with contextlib.suppress(FileNotFoundError):
            files.calls.unlink(self.file.path)

    def _shorten(self, files: OpenFiles) -> None:
        size_bytes = self.tail_number // BLOCK_ENTRIES * _SLOT_SIZE_BYTES
        if files.size_bytes(self.file) > size_bytes:
            files.truncate(self.file, size_bytes)
            files.sync(self.file)

    def _write(self, files: OpenFiles, count: int) -> bool:
        """Writes the first `count` blocks of the tail. On a disk error returns False and keeps them
        in memory."""
        number = self.tail_number // BLOCK_ENTRIES
        slots = b"".join(self._slot(number + i, i * BLOCK_ENTRIES) for i in range(count))
        try:
            files.pwrite(self.file, slots, number * _SLOT_SIZE_BYTES)
        except OSError as error:
            _log.warning("cannot write %s; its entries stay in memory: %s", self.file.path, error)
            return False
        return True

    def _slot(self, number: int, start: int) -> bytes:
        packed = self.tail[start : start + BLOCK_ENTRIES]
        end_position, end_offset = self.end_position, self.end_offset
        if start + BLOCK_ENTRIES < len(self.tail):
            following = self.tail[start + BLOCK_ENTRIES]
            end_position, end_offset = following & POSITION_MASK, self.offset_of(following)
        header = _HEADER.pack(
            *(_MAGIC, len(packed), self.first_index, number, end_position, end_offset)
        )
        body = packed.tobytes()
        checksum = _CHECKSUM.pack(zlib.crc32(body, zlib.crc32(header)))
        return header + checksum + body

    def _full_block(self, files: OpenFiles, number: int) -> _Block:
        """Reads a block that is not the last one. A crash may have restored the partial block of a
        clean stop while a later block is present."""
        block = self._block(files, number)
        if len(block.run.packed) != BLOCK_ENTRIES:
            raise EntriesDamaged(f"block {number} of {self.file.path} is an older version")
        return block

    def _block(self, files: OpenFiles, number: int) -> _Block:
        try:
            data = files.pread(self.file, _SLOT_SIZE_BYTES, number * _SLOT_SIZE_BYTES)
        except FileNotFoundError:
            raise EntriesDamaged(f"{self.file.path} is missing") from None
        if len(data) < _PREFIX_SIZE_BYTES:
            raise EntriesDamaged(f"{self.file.path} ends before block {number}")
        magic, count, first_index, own, end_position, end_offset = _HEADER.unpack_from(data)
        (checksum,) = _CHECKSUM.unpack_from(data, _HEADER.size)
        body = data[_PREFIX_SIZE_BYTES : _PREFIX_SIZE_BYTES + count * _ENTRY_SIZE_BYTES]
        is_whole = magic == _MAGIC and own == number and 0 < count <= BLOCK_ENTRIES
        if not is_whole or zlib.crc32(body, zlib.crc32(data[: _HEADER.size])) != checksum:
            raise EntriesDamaged(f"block {number} of {self.file.path} fails its checksum")
        packed = array("Q")
        packed.frombytes(body)
        return _Block(first_index, Run(packed, end_position, end_offset))


def list_indexes(files: OpenFiles, directory: str) -> list[Offset]:
    """Returns the base offsets of the segments that have an entry file."""
    names = files.calls.list_names(directory)
    stems = [name.removesuffix(_SUFFIX) for name in names if name.endswith(_SUFFIX)]
    return sorted(Offset(int(stem)) for stem in stems if stem.isdecimal())
