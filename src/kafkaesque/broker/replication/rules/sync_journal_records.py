"""The format of a sync journal file, and the replay of its records. Pure.

A file is a header followed by blocks. A block holds what one sync made durable: the batches that
many logs appended since the previous sync, and cuts of logs. Blocks are numbered, and a block is
written only when the previous one is durable. So an incomplete block is the last one and was never
acknowledged. If a complete block follows it, the file is damaged.

A record is (kind, group, offset, size), followed by `size` bytes:

- LOG: the path of the group's log. Precedes all other records of the group in a file.
- BATCHES: consecutive batches of one segment. The offset is the segment's base offset.
- CUT: batches of the group that end after the offset are void.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from kafkaesque.model.errors import CorruptMessage
from kafkaesque.model.ids import GroupId, Offset
from kafkaesque.records.batch import iter_batches

_FILE: Final = struct.Struct(">4sQI")
"""Magic, file id, CRC-32 of both. The id is random, so that no client's record can look like a
block."""
_FILE_MAGIC: Final = b"KQJ1"
FILE_HEADER_SIZE_BYTES: Final = _FILE.size
_BLOCK: Final = struct.Struct(">4sQQII")
"""Magic, file id, block number, size of the records, CRC-32 of everything but itself."""
_BLOCK_MAGIC: Final = b"KQJb"
_CHECKSUM: Final = struct.Struct(">I")
_CHECKSUM_POSITION: Final = _BLOCK.size - _CHECKSUM.size
_RECORD: Final = struct.Struct(">Bqqi")
_LOG: Final = 1
_BATCHES: Final = 2
_CUT: Final = 3
_BASE_OFFSET: Final = struct.Struct(">q")
"""The first field of a batch."""


def file_header(file_id: int) -> bytes:
    body = _FILE.pack(_FILE_MAGIC, file_id, 0)[: -_CHECKSUM.size]
    return body + _CHECKSUM.pack(zlib.crc32(body))


def log_record(group: GroupId, path: str) -> bytes:
    data = path.encode()
    return _RECORD.pack(_LOG, group, 0, len(data)) + data


def batches_record(group: GroupId, segment_base_offset: Offset, batches: list[bytes]) -> bytes:
    size_bytes = sum(map(len, batches))
    return _RECORD.pack(_BATCHES, group, segment_base_offset, size_bytes) + b"".join(batches)


def cut_record(group: GroupId, offset: Offset) -> bytes:
    return _RECORD.pack(_CUT, group, offset, 0)


def block(file_id: int, number: int, records: Iterable[bytes]) -> bytes:
    body = b"".join(records)
    header = _BLOCK.pack(_BLOCK_MAGIC, file_id, number, len(body), 0)[:_CHECKSUM_POSITION]
    return b"".join((header, _CHECKSUM.pack(zlib.crc32(body, zlib.crc32(header))), body))


class JournaledBatches(NamedTuple):
    """Consecutive batches of one segment."""

    segment_base_offset: Offset
    data: memoryview

    @property
    def base_offset(self) -> Offset:
        return Offset(_BASE_OFFSET.unpack_from(self.data)[0])

    def before(self, offset: Offset) -> JournaledBatches:
        """Returns the batches that end at or before `offset`."""
        end = 0
        for position, header in iter_batches(self.data):
            if header.next_offset > offset:
                break
            end = position + header.size_bytes
        return JournaledBatches(self.segment_base_offset, self.data[:end])


@dataclass(slots=True)
class JournaledLog:
    """The journal's batches of one log, with cuts applied."""

    path: str = ""
    """Relative to the data directory."""
    batches: list[JournaledBatches] = field(default_factory=list)

    def cut(self, offset: Offset) -> None:
        while self.batches and self.batches[-1].base_offset >= offset:
            self.batches.pop()
        if self.batches:
            last = self.batches.pop().before(offset)
            if last.data:
                self.batches.append(last)


def replay(logs: dict[GroupId, JournaledLog], data: memoryview) -> int:
    """Replays the blocks of one file; call it with the oldest file first. Returns the end of the
    last complete block.

    Raises CorruptMessage(reason, position) if a durable block is damaged.
    """
    if len(data) < FILE_HEADER_SIZE_BYTES:
        return 0
    magic, file_id, checksum = _FILE.unpack_from(data)
    body = data[: FILE_HEADER_SIZE_BYTES - _CHECKSUM.size]
    if magic != _FILE_MAGIC or zlib.crc32(body) != checksum:
        # The header is synced before the first block is written: without it there was no block.
        if bytes(data).find(_BLOCK_MAGIC, FILE_HEADER_SIZE_BYTES) >= 0:
            raise CorruptMessage("the header is damaged", 0)
        return 0
    position, number = FILE_HEADER_SIZE_BYTES, 0
    while (end := _block_end(data, position, file_id, number)) is not None:
        _replay_block(logs, data[position + _BLOCK.size : end])
        position, number = end, number + 1
    _check_torn(data, position, file_id, number)
    return position


def _block_end(data: memoryview, position: int, file_id: int, number: int) -> int | None:
    """Returns the end of block `number` at `position`; None if there is no complete one."""
    start = position + _BLOCK.size
    if start > len(data):
        return None
    magic, of_file, found, size_bytes, checksum = _BLOCK.unpack_from(data, position)
    is_expected = magic == _BLOCK_MAGIC and of_file == file_id and found == number
    end = start + size_bytes
    if not is_expected or end > len(data):
        return None
    header = data[position : position + _CHECKSUM_POSITION]
    return end if zlib.crc32(data[start:end], zlib.crc32(header)) == checksum else None


def _check_torn(data: memoryview, position: int, file_id: int, number: int) -> None:
    """Checks that at most a torn last block is at `position`."""
    text = bytes(data[position:])
    at = text.find(_BLOCK_MAGIC, 1)
    while at >= 0:
        if at + _BLOCK.size <= len(text):
            _, of_file, found, _, _ = _BLOCK.unpack_from(text, at)
            is_later = found > number and of_file == file_id
            if is_later and _block_end(data, position + at, of_file, found) is not None:
                raise CorruptMessage(
                    f"block {number} is damaged, but block {found} is complete", position
                )
        at = text.find(_BLOCK_MAGIC, at + 1)


def _replay_block(logs: dict[GroupId, JournaledLog], body: memoryview) -> None:
    for kind, group, offset, data in _records(body):
        if kind == _LOG:
            logs.setdefault(group, JournaledLog()).path = bytes(data).decode()
        elif kind == _BATCHES:
            logs[group].batches.append(JournaledBatches(offset, data))
        elif kind == _CUT:
            logs[group].cut(offset)
        else:
            raise CorruptMessage(
                f"a record has kind {kind}, which this version does not support", 0
            )


def _records(body: memoryview) -> Iterator[tuple[int, GroupId, Offset, memoryview]]:
    position = 0
    while position < len(body):
        kind, group, offset, size_bytes = _RECORD.unpack_from(body, position)
        position += _RECORD.size
        yield kind, group, offset, body[position : position + size_bytes]
        position += size_bytes
