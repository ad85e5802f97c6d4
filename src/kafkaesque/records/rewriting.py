"""Filters the records of a batch, for log compaction. Pure.

A kept record keeps its bytes, offset and timestamp. A batch keeps its first and last offset, its
leader epoch and its producer fields, so sequences and epochs can be read from it even when no record
is left. Layout and re-encoding rules: org.apache.kafka.common.record.MemoryRecords.filterTo; delete
horizon: KIP-534.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from kafkaesque.model.errors import CorruptMessage, InvalidRecord
from kafkaesque.model.ids import NO_TIMESTAMP, TimestampMs
from kafkaesque.model.limits import RECORDS_DECOMPRESSED_BYTES_MAX
from kafkaesque.records.batch import BatchHeader, Buffer, Codec, reseal
from kafkaesque.records.compression import compress, decompress
from kafkaesque.records.layout import (
    APPEND_TIME_BIT,
    CONTROL_BIT,
    HEADER,
    HEADER_SIZE_BYTES,
    LENGTH_OVERHEAD_BYTES,
    TRANSACTIONAL_BIT,
)

DELETE_HORIZON_BIT: Final = 0x40
"""If set, the base timestamp of the batch is the time from which its tombstones may be removed."""

Keep = Callable[[int, bytes | None, bool], bool]
"""(offset, key, has a value) -> whether the record is kept."""


class RecordPlace(NamedTuple):
    """The position of one record in the decompressed batch, and the fields that a cleaner needs."""

    start: int
    """Position of its length prefix."""
    rest: int
    """Position after its timestamp delta."""
    end: int
    timestamp_delta: int
    offset_delta: int
    key: bytes | None
    has_value: bool


class Selection(NamedTuple):
    """The records of a batch that are kept."""

    header: BatchHeader
    body: bytes
    kept: list[RecordPlace]
    has_tombstone: bool

    @property
    def is_whole(self) -> bool:
        return len(self.kept) == self.header.record_count


def delete_horizon_ms(header: BatchHeader) -> TimestampMs | None:
    """When the batch's tombstones may be removed; None if no cleaning has set it yet."""
    return header.base_timestamp if header.attributes & DELETE_HORIZON_BIT else None


def places_of(
    buffer: Buffer, position: int, header: BatchHeader
) -> tuple[bytes, list[RecordPlace]]:
    """The decompressed records of the batch at `position`, and where each is.

    Raises InvalidRecord if the bytes are not records.
    """
    end = position + header.size_bytes
    if end > len(buffer):
        raise CorruptMessage(f"batch of {header.size_bytes} bytes is cut")
    raw = memoryview(buffer)[position + HEADER_SIZE_BYTES : end]
    body = bytes(decompress(header.codec, raw, RECORDS_DECOMPRESSED_BYTES_MAX))
    try:
        return body, list(_walk(body, header.record_count))
    except IndexError:
        raise InvalidRecord("record runs past the end of its batch") from None


def _walk(body: bytes, count: int) -> Iterator[RecordPlace]:
    """Yields the place of each record.

    Single-byte varints, the common case, are decoded inline: this is the innermost loop of a
    cleaning.
    """
    position, size_bytes = 0, len(body)
    for _ in range(count):
        start = position
        length, position = _varint(body, position)
        end = position + length
        if length < 0 or end > size_bytes:
            raise InvalidRecord(f"record claims {length} bytes of {size_bytes - position}")
        timestamp_delta, rest = _varint(body, position + 1)
        byte = body[rest]
        if byte < 0x80:
            offset_delta, position = (byte >> 1) ^ -(byte & 1), rest + 1
        else:
            offset_delta, position = _varint(body, rest)
        byte = body[position]
        if byte < 0x80:
            key_size_bytes, position = (byte >> 1) ^ -(byte & 1), position + 1
        else:
            key_size_bytes, position = _varint(body, position)
        key = None
        if key_size_bytes >= 0:
            key = body[position : position + key_size_bytes]
            position += key_size_bytes
        value_size_bytes, position = _varint(body, position)
        if position + max(value_size_bytes, 0) > end:
            raise InvalidRecord("record value runs past its record")
        yield RecordPlace(
            start, rest, end, timestamp_delta, offset_delta, key, value_size_bytes >= 0
        )
        position = end


def _varint(body: bytes, position: int) -> tuple[int, int]:
    byte = body[position]
    position += 1
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), position
    value, shift = byte & 0x7F, 7
    while byte >= 0x80:
        if shift > 63:
            raise InvalidRecord("variable-length integer is too long")
        byte = body[position]
        position += 1
        value |= (byte & 0x7F) << shift
        shift += 7
    return (value >> 1) ^ -(value & 1), position


def select(buffer: Buffer, position: int, header: BatchHeader, keep: Keep) -> Selection:
    """Selects the records of the batch that `keep` accepts."""
    body, places = places_of(buffer, position, header)
    base_offset = header.base_offset
    kept = [p for p in places if keep(base_offset + p.offset_delta, p.key, p.has_value)]
    return Selection(header, body, kept, not all(place.has_value for place in kept))


def encode_selection(selection: Selection, horizon_ms: TimestampMs | None) -> bytearray:
    """Encodes a batch with the kept records (at least one), compressed with the same codec.

    `horizon_ms` is the delete horizon to set; None leaves it unchanged.
    """
    header, body, kept, _ = selection
    uses_append_time = bool(header.attributes & APPEND_TIME_BIT)
    base_timestamp, attributes = header.base_timestamp, header.attributes
    if horizon_ms is not None:
        attributes |= DELETE_HORIZON_BIT
    if horizon_ms is None or uses_append_time:
        records = b"".join([body[place.start : place.end] for place in kept])
    else:
        records = b"".join([_moved(body, p, base_timestamp - horizon_ms) for p in kept])
    max_timestamp = header.max_timestamp
    if not uses_append_time:
        latest = max(place.timestamp_delta for place in kept)
        max_timestamp = TimestampMs(base_timestamp + latest)
    fields = header._replace(
        attributes=attributes,
        base_timestamp=base_timestamp if horizon_ms is None else horizon_ms,
        max_timestamp=max_timestamp,
        record_count=len(kept),
    )
    codec = Codec(header.codec)
    return _sealed(fields, records if codec is Codec.NONE else compress(codec, records))


def empty_batch(header: BatchHeader) -> bytearray:
    """The batch without records: keeps offsets, epochs, producer and sequences."""
    attributes = header.attributes & (APPEND_TIME_BIT | TRANSACTIONAL_BIT | CONTROL_BIT)
    fields = header._replace(attributes=attributes, base_timestamp=NO_TIMESTAMP, record_count=0)
    return _sealed(fields, b"")


def _moved(body: bytes, place: RecordPlace, shift_ms: int) -> bytes:
    """The record with its timestamp delta relative to another base timestamp."""
    _, attributes_position = _varint(body, place.start)
    record = bytearray([body[attributes_position]])
    _append_varint(record, place.timestamp_delta + shift_ms)
    record += body[place.rest : place.end]
    length = bytearray()
    _append_varint(length, len(record))
    return bytes(length + record)


def _append_varint(output: bytearray, value: int) -> None:
    zigzag = (value << 1) ^ (value >> 63)
    while zigzag >= 0x80:
        output.append(zigzag & 0x7F | 0x80)
        zigzag >>= 7
    output.append(zigzag)


def _sealed(header: BatchHeader, records: Buffer) -> bytearray:
    batch = bytearray(HEADER_SIZE_BYTES)
    batch += records
    length = len(batch) - LENGTH_OVERHEAD_BYTES
    HEADER.pack_into(batch, 0, header.base_offset, length, *header[2:])
    reseal(batch, 0, len(batch))
    return batch
