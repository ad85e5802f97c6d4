"""Encodes, decodes and validates the records inside a v2 batch.

`records.batch` checks the CRC. Malformed records in a batch with a valid CRC raise InvalidRecord;
malformed bytes never raise an unexpected exception. Layout:
org.apache.kafka.common.record.DefaultRecord.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from kafkaesque.model.errors import CorruptMessage, InvalidRecord, check
from kafkaesque.model.ids import (
    NO_EPOCH,
    NO_PRODUCER,
    NO_TIMESTAMP,
    LeaderEpoch,
    Offset,
    ProducerEpoch,
    ProducerId,
    TimestampMs,
)
from kafkaesque.model.limits import RECORDS_DECOMPRESSED_BYTES_MAX
from kafkaesque.records.batch import BatchHeader, Buffer, Codec, read_header, reseal
from kafkaesque.records.compression import compress, decompress
from kafkaesque.records.layout import (
    CONTROL_BIT,
    HEADER,
    HEADER_SIZE_BYTES,
    LENGTH_OVERHEAD_BYTES,
    MAGIC,
    TRANSACTIONAL_BIT,
)

NO_SEQUENCE: Final = -1

_VARINT_BITS_MAX: Final = 32
_VARLONG_BITS_MAX: Final = 64
_RECORD_SIZE_BYTES_MIN: Final = 7
"""Length, attributes, two deltas, two lengths of -1 and a header count, one byte each."""
_TIMESTAMP_MAX: Final = 2**63 - 1
_KEY_ERRORS: Final = "surrogateescape"
"""Header keys need not be UTF-8; this preserves other bytes, so that a round trip is exact."""
_FIRST_OFFSET: Final = Offset(0)
_NO_PRODUCER_EPOCH: Final = ProducerEpoch(-1)


class Record(NamedTuple):
    """One record with its offset in the log."""

    offset: Offset
    timestamp: TimestampMs
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()


class RecordsSummary(NamedTuple):
    """The result of `check_records`."""

    max_timestamp: TimestampMs
    """NO_TIMESTAMP for a batch without records."""
    max_timestamp_offset: Offset
    """Offset of the first record with `max_timestamp`."""


def encode_batch(
    records: Sequence[Record],
    *,
    base_offset: Offset = _FIRST_OFFSET,
    codec: Codec = Codec.NONE,
    leader_epoch: LeaderEpoch = NO_EPOCH,
    producer_id: ProducerId = NO_PRODUCER,
    producer_epoch: ProducerEpoch = _NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    is_transactional: bool = False,
    is_control: bool = False,
    keep_offsets: bool = False,
) -> bytearray:
    """Encodes `records` into a batch with a valid checksum.

    Offsets are consecutive from `base_offset`; the records' own are ignored. With `keep_offsets` each
    record keeps its own offset; they must ascend from `base_offset` on.
    """
    check(len(records) > 0, "a batch has at least one record")
    base_timestamp = records[0].timestamp
    body = bytearray()
    delta = -1
    for record in records:
        previous = delta
        delta = record.offset - base_offset if keep_offsets else delta + 1
        check(delta > previous, f"offset {record.offset} does not ascend from {base_offset}")
        _append_record(body, record, record.timestamp - base_timestamp, delta)
    attributes = int(codec)
    attributes |= TRANSACTIONAL_BIT if is_transactional else 0
    attributes |= CONTROL_BIT if is_control else 0
    payload = body if codec == Codec.NONE else compress(codec, body)
    batch = bytearray(HEADER_SIZE_BYTES)
    batch += payload
    HEADER.pack_into(
        batch,
        0,
        base_offset,
        len(batch) - LENGTH_OVERHEAD_BYTES,
        leader_epoch,
        MAGIC,
        0,
        attributes,
        delta,
        base_timestamp,
        max(record.timestamp for record in records),
        producer_id,
        producer_epoch,
        base_sequence,
        len(records),
    )
    reseal(batch, 0, len(batch))
    return batch


def decode_batch(buffer: Buffer, position: int = 0) -> list[Record]:
    """Decodes the batch at `position`; decompresses at most RECORDS_DECOMPRESSED_BYTES_MAX."""
    header, body = _open_body(buffer, position)
    try:
        return list(_read_records(header, body))
    except IndexError:
        raise InvalidRecord("record runs past the end of its batch") from None


def check_records(
    buffer: Buffer,
    position: int = 0,
    *,
    dense: bool = True,
    keys_required: bool = False,
) -> RecordsSummary:
    """Validates the records without building them. Raises InvalidRecord.

    `dense`: offset deltas must be 0, 1, 2, ... as producers send them; a compacted batch has gaps.
    `keys_required`: every record must have a key, as in a compacted topic.
    """
    header, body = _open_body(buffer, position)
    best, best_delta = NO_TIMESTAMP, -1
    keyless: list[int] = []
    for index, walked in enumerate(_walk(header, body)):
        if dense and walked.offset_delta != index:
            raise InvalidRecord(f"record {index} has offset delta {walked.offset_delta}")
        if keys_required and not walked.has_key:
            keyless.append(index)
        if best_delta < 0 or walked.timestamp > best:
            best, best_delta = walked.timestamp, walked.offset_delta
    if dense and header.last_offset_delta != header.record_count - 1:
        raise InvalidRecord(
            f"batch of {header.record_count} records has last offset delta "
            f"{header.last_offset_delta}"
        )
    if keyless:
        reason = "Compacted topic cannot accept message without key"
        raise InvalidRecord(f"{reason}: {len(keyless)} record(s)", [(i, reason) for i in keyless])
    return RecordsSummary(best, Offset(header.base_offset + max(best_delta, 0)))


def find_timestamp(
    buffer: Buffer,
    position: int,
    timestamp: TimestampMs,
    *,
    from_offset: Offset = _FIRST_OFFSET,
) -> tuple[TimestampMs, Offset] | None:
    """Timestamp and offset of the first record at or after `from_offset` whose timestamp is at least
    `timestamp`."""
    header, body = _open_body(buffer, position)
    for walked in _walk(header, body):
        offset = Offset(header.base_offset + walked.offset_delta)
        if walked.timestamp >= timestamp and offset >= from_offset:
            return walked.timestamp, offset
    return None


class _Walked(NamedTuple):
    timestamp: TimestampMs
    offset_delta: int
    has_key: bool


def _open_body(buffer: Buffer, position: int) -> tuple[BatchHeader, Buffer]:
    """The header and the decompressed records. Rejects a record count that does not fit."""
    header = read_header(buffer, position)
    end = position + header.size_bytes
    if end > len(buffer):
        raise CorruptMessage(
            f"batch of {header.size_bytes} bytes is cut to {len(buffer) - position} bytes"
        )
    raw = memoryview(buffer)[position + HEADER_SIZE_BYTES : end]
    body = decompress(header.codec, raw, RECORDS_DECOMPRESSED_BYTES_MAX)
    if header.record_count * _RECORD_SIZE_BYTES_MIN > len(body):
        raise InvalidRecord(f"batch claims {header.record_count} records in {len(body)} bytes")
    return header, body


def _walk(header: BatchHeader, body: Buffer) -> Iterator[_Walked]:
    """Validates each record and yields its timestamp, offset delta and whether it has a key.

    The fields must exactly fill the record, and the records the batch.
    """
    append_time = header.max_timestamp if header.uses_append_time else None
    position = 0
    delta = -1
    try:
        for _ in range(header.record_count):
            position, end = _record_bounds(body, position)
            timestamp_delta, position = _read_varint(body, position + 1, _VARLONG_BITS_MAX)
            previous = delta
            delta, position = _read_varint(body, position, _VARINT_BITS_MAX)
            if not previous < delta <= header.last_offset_delta:
                raise InvalidRecord(f"offset delta {delta} follows {previous}")
            key_size_bytes, position = _read_varint(body, position, _VARINT_BITS_MAX)
            position = _skip_rest(body, position + max(key_size_bytes, 0), end)
            timestamp = append_time
            if timestamp is None:
                timestamp = TimestampMs(header.base_timestamp + timestamp_delta)
                if not -_TIMESTAMP_MAX <= timestamp <= _TIMESTAMP_MAX:
                    raise InvalidRecord(f"timestamp delta {timestamp_delta} overflows")
            yield _Walked(timestamp, delta, key_size_bytes >= 0)
    except IndexError:
        raise InvalidRecord("record runs past the end of its batch") from None
    if position != len(body):
        raise InvalidRecord(f"{len(body) - position} bytes after the last record")


def _record_bounds(body: Buffer, position: int) -> tuple[int, int]:
    """Start and end of the record whose length is at `position`."""
    size_bytes, position = _read_varint(body, position, _VARINT_BITS_MAX)
    end = position + size_bytes
    if size_bytes < _RECORD_SIZE_BYTES_MIN - 1 or end > len(body):
        raise InvalidRecord(f"record claims {size_bytes} bytes of {len(body) - position}")
    return position, end


def _skip_rest(body: Buffer, position: int, end: int) -> int:
    """Skips a record's value and headers, which must end at `end`."""
    if position > end:
        raise InvalidRecord("record key runs past its record")
    size_bytes, position = _read_varint(body, position, _VARINT_BITS_MAX)
    position += max(size_bytes, 0)
    if position > end:
        raise InvalidRecord("record value runs past its record")
    count, position = _read_varint(body, position, _VARINT_BITS_MAX)
    if not 0 <= count <= end - position:
        raise InvalidRecord(f"record claims {count} headers")
    for _ in range(count):
        size_bytes, position = _read_varint(body, position, _VARINT_BITS_MAX)
        if size_bytes < 0 or position + size_bytes > end:
            raise InvalidRecord(f"header key claims {size_bytes} bytes")
        size_bytes, position = _read_varint(body, position + size_bytes, _VARINT_BITS_MAX)
        position += max(size_bytes, 0)
        if position > end:
            raise InvalidRecord("header value runs past its record")
    if position != end:
        raise InvalidRecord("record's parts do not fill its length")
    return position


def _read_records(header: BatchHeader, body: Buffer) -> Iterator[Record]:
    """Builds each record. `_walk` has validated it, so this only extracts the fields."""
    start = 0
    for walked in _walk(header, body):
        _, position = _read_varint(body, start, _VARINT_BITS_MAX)
        _, position = _read_varint(body, position + 1, _VARLONG_BITS_MAX)
        _, position = _read_varint(body, position, _VARINT_BITS_MAX)
        key, position = _read_bytes(body, position)
        value, position = _read_bytes(body, position)
        count, position = _read_varint(body, position, _VARINT_BITS_MAX)
        headers = []
        for _ in range(count):
            name, position = _read_bytes(body, position)
            content, position = _read_bytes(body, position)
            headers.append(((name or b"").decode("utf-8", _KEY_ERRORS), content))
        start = position
        offset = Offset(header.base_offset + walked.offset_delta)
        yield Record(offset, walked.timestamp, key, value, tuple(headers))


def _read_bytes(body: Buffer, position: int) -> tuple[bytes | None, int]:
    size_bytes, position = _read_varint(body, position, _VARINT_BITS_MAX)
    if size_bytes < 0:
        return None, position
    return bytes(body[position : position + size_bytes]), position + size_bytes


def _read_varint(body: Buffer, position: int, bits_max: int) -> tuple[int, int]:
    """A zigzag varint and the position after it. IndexError if the bytes end."""
    byte = body[position]
    position += 1
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), position
    value = byte & 0x7F
    shift = 7
    while byte >= 0x80:
        if shift >= bits_max:
            raise InvalidRecord("variable-length integer is too long")
        byte = body[position]
        position += 1
        value |= (byte & 0x7F) << shift
        shift += 7
    if value >> bits_max:
        raise InvalidRecord(f"variable-length integer has more than {bits_max} bits")
    return (value >> 1) ^ -(value & 1), position


def _append_varint(output: bytearray, value: int) -> None:
    zigzag = (value << 1) ^ (value >> 63)
    while zigzag >= 0x80:
        output.append(zigzag & 0x7F | 0x80)
        zigzag >>= 7
    output.append(zigzag)


def _append_bytes(output: bytearray, data: bytes | None) -> None:
    if data is None:
        _append_varint(output, -1)
    else:
        _append_varint(output, len(data))
        output += data


def _append_record(
    output: bytearray, record: Record, timestamp_delta: int, offset_delta: int
) -> None:
    body = bytearray(1)
    _append_varint(body, timestamp_delta)
    _append_varint(body, offset_delta)
    _append_bytes(body, record.key)
    _append_bytes(body, record.value)
    _append_varint(body, len(record.headers))
    for name, content in record.headers:
        _append_bytes(body, name.encode("utf-8", _KEY_ERRORS))
        _append_bytes(body, content)
    _append_varint(output, len(body))
    output += body
