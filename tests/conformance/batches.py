"""Record batches byte by byte (format v2), independent of the code under test.

`encode` builds a batch of a producer; `split` and `Header` read batches that a broker returned.
"""

from __future__ import annotations

import gzip
import struct
from collections.abc import Sequence
from typing import NamedTuple

import cramjam
import google_crc32c

CODECS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
NO_TIMESTAMP = -1

_LAYOUT = struct.Struct(">qiibIhiqqqhii")


class Header(NamedTuple):
    """The 61 bytes before the records."""

    base_offset: int
    batch_length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def codec(self) -> str:
        return next(name for name, bits in CODECS.items() if bits == self.attributes & 0b111)

    @property
    def log_append_time(self) -> bool:
        return bool(self.attributes & 0b1000)

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta


class Record(NamedTuple):
    key: bytes | None
    value: bytes | None
    timestamp: int = 1_700_000_000_000
    headers: Sequence[tuple[str, bytes | None]] = ()


def encode(
    records: Sequence[Record],
    *,
    codec: str = "none",
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    attributes: int = 0,
) -> bytes:
    """A batch as a producer sends it: base offset 0, leader epoch -1."""
    base = records[0].timestamp
    body = b"".join(_record(index, base, record) for index, record in enumerate(records))
    tail = struct.pack(
        ">hiqqqhii",
        CODECS[codec] | attributes,
        len(records) - 1,
        base,
        max(record.timestamp for record in records),
        producer_id,
        producer_epoch,
        base_sequence,
        len(records),
    ) + _compress(codec, body)
    head = struct.pack(">qiibI", 0, len(tail) + 9, -1, 2, google_crc32c.value(tail))
    return head + tail


def header(batch: bytes) -> Header:
    return Header(*_LAYOUT.unpack_from(batch))


def split(data: bytes) -> list[bytes]:
    """The complete batches in `data`; a truncated last one, which a broker may send, is left out."""
    found, position = [], 0
    while position + _LAYOUT.size <= len(data):
        size = header(data[position:]).batch_length + 12
        if position + size > len(data):
            break
        found.append(data[position : position + size])
        position += size
    return found


def crc_is_right(batch: bytes) -> bool:
    return bool(google_crc32c.value(batch[21:]) == header(batch).crc)


def _record(index: int, base_timestamp: int, record: Record) -> bytes:
    body = b"\x00" + _varint(record.timestamp - base_timestamp) + _varint(index)
    body += _nullable(record.key) + _nullable(record.value) + _varint(len(record.headers))
    for name, value in record.headers:
        body += _nullable(name.encode()) + _nullable(value)
    return _varint(len(body)) + body


def _nullable(value: bytes | None) -> bytes:
    return _varint(-1) if value is None else _varint(len(value)) + value


def _varint(value: int) -> bytes:
    zigzag = (value << 1) ^ (value >> 63)
    out = bytearray()
    while zigzag > 0x7F:
        out.append(zigzag & 0x7F | 0x80)
        zigzag >>= 7
    out.append(zigzag)
    return bytes(out)


def _compress(codec: str, body: bytes) -> bytes:
    match codec:
        case "none":
            return body
        case "gzip":
            return gzip.compress(body)
        case "snappy":
            return bytes(cramjam.snappy.compress_raw(body))
        case "lz4":
            return bytes(cramjam.lz4.compress(body))
        case "zstd":
            return bytes(cramjam.zstd.compress(body))
    raise ValueError(codec)
