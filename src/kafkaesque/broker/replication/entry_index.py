"""Where each batch of one segment stands: the fixed-width file beside it, and its unwritten end.

An entry of 8 bytes stands for a batch: the distance of its offset from the segment's, and its
position; where it ends is where the next one begins. Entries are kept in memory and written in
blocks of 128, the last 128 or more staying in memory, so an append costs no system call and what is
asked for most needs none either. A block says of itself which it is and where it ends, and carries
a checksum. With a sync of the segment the end is written too, so that a process that is killed leaves
where everything stands that it had made durable: a damaged header could not be passed without.

The file is never synced as it grows: what is missing is found again from the headers of the
segment, which is the truth. But what the file says must be true whatever a crash undoes, so it is
*cut* durably, before the segment is.
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
"""Magic, entries, index of the segment's first batch, number of the block, and where its last batch
ends: position and offset. In the machine's own order, as the entries are; the magic tells."""
_CHECKSUM: Final = struct.Struct("=I")
_MAGIC: Final = 0x4B514531
_PREFIX_SIZE_BYTES: Final = _HEADER.size + _CHECKSUM.size
_SLOT_SIZE_BYTES: Final = _PREFIX_SIZE_BYTES + BLOCK_ENTRIES * _ENTRY_SIZE_BYTES
_POSITION_BITS: Final = 32
POSITION_MASK: Final = (1 << _POSITION_BITS) - 1


class EntriesDamaged(Exception):
    """The file does not hold what was written; the segment has to be walked again."""


class Run(NamedTuple):
    """Consecutive batches, and where the last one ends."""

    packed: array[int]
    """Offset delta in the high half, position in the low one."""
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
        """Of batch 0; means nothing while there is none."""
        self.file = OpenFile(f"{directory}/{base_offset:020d}{_SUFFIX}")
        self.tail: array[int] = array("Q")
        """Entries that are not (or not only) in the file."""
        self.tail_number = 0
        """Of the first one in the tail; a multiple of BLOCK_ENTRIES. All before are in the file."""
        self.end_position = 0
        self.end_offset = base_offset
        self.saved_count = 0
        """So many batches are in the file, if it is as it was written."""

    @property
    def count(self) -> int:
        return self.tail_number + len(self.tail)

    def append(self, size_bytes: int, end_offset: Offset) -> int:
        """A batch that stands behind the others; its position."""
        position = self.end_position
        self.tail.append((self.end_offset - self.base_offset) << _POSITION_BITS | position)
        self.end_position = position + size_bytes
        self.end_offset = end_offset
        return position

    def base_of(self, files: OpenFiles, number: int) -> Offset:
        """The offset of batch `number`, or where the last one ends."""
        if number == self.count:
            return self.end_offset
        return self.offset_of(self.run_from(files, number).packed[0])

    def offset_of(self, packed: int) -> Offset:
        return Offset(self.base_offset + (packed >> _POSITION_BITS))

    def run_from(self, files: OpenFiles, number: int) -> Run:
        """Batches from `number` on, at least one, as far as they are at hand. EntriesDamaged."""
        if number >= self.tail_number:
            tail = self.tail[number - self.tail_number :]
            return Run(tail, self.end_position, self.end_offset)
        packed, end_position, end_offset = self._full_block(files, number // BLOCK_ENTRIES).run
        return Run(packed[number % BLOCK_ENTRIES :], end_position, end_offset)

    def find(self, files: OpenFiles, offset: Offset) -> int:
        """The batch that has `offset`. base_offset <= offset < end_offset. EntriesDamaged."""
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
        """What the file knows of the batches up to `limit` (position and offset), which may be
        less than there is; None if it knows nothing."""
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
        """Believe that this is the last block."""
        packed, self.end_position, self.end_offset = block.run
        self.first_index = block.first_index
        is_full = len(packed) == BLOCK_ENTRIES
        self.tail_number = (number + is_full) * BLOCK_ENTRIES
        self.tail = array("Q") if is_full else packed

    def flush(self, files: OpenFiles) -> None:
        """Write the full blocks of the tail and forget all but the last of them."""
        count = len(self.tail) // BLOCK_ENTRIES - 1
        if count > 0 and self._write(files, count):
            del self.tail[: count * BLOCK_ENTRIES]
            self.tail_number += count * BLOCK_ENTRIES

    def save(self, files: OpenFiles) -> None:
        """Write all of it, and keep what is in memory."""
        count = self.count
        if count != self.saved_count and self._write(files, -(-len(self.tail) // BLOCK_ENTRIES)):
            self.saved_count = count

    def seal(self, files: OpenFiles) -> None:
        """Write all of it; what is in full blocks is forgotten."""
        count = len(self.tail) // BLOCK_ENTRIES
        is_partial = len(self.tail) > count * BLOCK_ENTRIES
        if self.tail and self._write(files, count + is_partial):
            del self.tail[: count * BLOCK_ENTRIES]
            self.tail_number += count * BLOCK_ENTRIES

    def cut(self, files: OpenFiles, count: int) -> None:
        """Keep the first `count` batches, durably in the file. Raises OSError, EntriesDamaged."""
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
        """Remove the file, and durably all that is in it: its name may come back after a crash,
        beside another segment that begins at the same offset. Raises OSError."""
        if files.calls.exists(self.file.path):
            files.truncate(self.file, 0)
            files.sync(self.file)
            files.forget(self.file)
            files.calls.unlink(self.file.path)

    def restart(self, files: OpenFiles, first_index: LogIndex) -> None:
        """Forget every batch, durably in the file. Raises OSError."""
        self.delete(files)
        self.first_index = first_index
        self.tail = array("Q")
        self.tail_number = self.end_position = self.saved_count = 0
        self.end_offset = self.base_offset

    def discard(self, files: OpenFiles) -> None:
        """Remove the file of a segment that will never be written again."""
        files.forget(self.file)
        with contextlib.suppress(FileNotFoundError):
            files.calls.unlink(self.file.path)

    def _shorten(self, files: OpenFiles) -> None:
        size_bytes = self.tail_number // BLOCK_ENTRIES * _SLOT_SIZE_BYTES
        if files.size_bytes(self.file) > size_bytes:
            files.truncate(self.file, size_bytes)
            files.sync(self.file)

    def _write(self, files: OpenFiles, count: int) -> bool:
        """Write the first `count` blocks of the tail; False if the disk refuses: they are kept."""
        number = self.tail_number // BLOCK_ENTRIES
        slots = b"".join(self._slot(number + i, i * BLOCK_ENTRIES) for i in range(count))
        try:
            files.pwrite(self.file, slots, number * _SLOT_SIZE_BYTES)
        except OSError as error:
            _log.warning("cannot write %s, which stays in memory: %s", self.file.path, error)
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
        """One that others follow. What a crash brought back may be the block as it was sealed at a
        clean stop, with fewer batches, while the later one behind it is there."""
        block = self._block(files, number)
        if len(block.run.packed) != BLOCK_ENTRIES:
            raise EntriesDamaged(f"block {number} of {self.file.path} is an older one")
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
    """The first offsets of the segments that have a file of entries."""
    names = files.calls.list_names(directory)
    stems = [name.removesuffix(_SUFFIX) for name in names if name.endswith(_SUFFIX)]
    return sorted(Offset(int(stem)) for stem in stems if stem.isdecimal())
