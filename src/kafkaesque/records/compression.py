"""Compresses and decompresses with Kafka's four codecs.

Sizes claimed by a peer are never trusted: output goes into a buffer allocated here, which grows up to
the caller's limit and no further (CVE-2023-34455, CVE-2023-43642, CVE-2026-111073). Data that cannot
be decompressed raises InvalidRecord, not CorruptMessage: the checksum was valid, so sending the same
bytes again, as clients do on CORRUPT_MESSAGE, would not help.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, Final

import cramjam

from kafkaesque.model.errors import InvalidRecord, UnsupportedCompressionType
from kafkaesque.records.batch import Buffer, Codec

_XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
_XERIAL_HEADER: Final = _XERIAL_MAGIC + struct.pack(">ii", 1, 1)
"""snappy-java's stream header: magic, version, lowest compatible version."""
_XERIAL_BLOCK_SIZE_BYTES: Final = 32 * 1024
_XERIAL_LENGTH: Final = struct.Struct(">I")
_SNAPPY_RATIO_MAX: Final = 64
"""A copy element of snappy takes at least two bytes and yields at most 64 (format description)."""

_FIRST_GUESS_SIZE_BYTES_MIN: Final = 16 * 1024
_FIRST_GUESS_RATIO: Final = 4
_GROWTH: Final = 4
_OUTPUT_FULL: Final = "failed to write whole buffer"


def compress(codec: int, data: Buffer) -> bytes:
    """Compresses `data` with `codec`, framed as the Java client does."""
    if codec == Codec.NONE:
        return bytes(data)
    if codec == Codec.GZIP:
        return bytes(cramjam.gzip.compress(data))
    if codec == Codec.SNAPPY:
        return _compress_xerial(memoryview(data))
    if codec == Codec.LZ4:
        return bytes(cramjam.lz4.compress(data))
    if codec == Codec.ZSTD:
        return bytes(cramjam.zstd.compress(data))
    raise UnsupportedCompressionType(f"compression codec {codec} is unknown")


def decompress(codec: int, data: Buffer, size_bytes_max: int) -> Buffer:
    """Decompresses `data`. InvalidRecord if it is malformed or exceeds `size_bytes_max`."""
    if codec == Codec.NONE:
        if len(data) > size_bytes_max:
            raise _too_large(size_bytes_max)
        return data
    if codec == Codec.GZIP:
        return _inflate(cramjam.gzip.decompress_into, data, size_bytes_max)
    if codec == Codec.SNAPPY:
        return _decompress_snappy(memoryview(data), size_bytes_max)
    if codec == Codec.LZ4:
        return _inflate(cramjam.lz4.decompress_into, data, size_bytes_max)
    if codec == Codec.ZSTD:
        return _inflate(cramjam.zstd.decompress_into, data, size_bytes_max)
    raise UnsupportedCompressionType(f"compression codec {codec} is unknown")


def _inflate(
    decompress_into: Callable[[Any, Any], int], data: Buffer, size_bytes_max: int
) -> memoryview:
    """Decompresses into a buffer of a guessed size, and again into a larger one if it overflows.

    Starting over costs at most a third more than decompressing once, and keeps the limit exact.
    """
    guess = max(_FIRST_GUESS_SIZE_BYTES_MIN, len(data) * _FIRST_GUESS_RATIO)
    while True:
        capacity = min(guess, size_bytes_max)
        output = bytearray(capacity)
        try:
            size_bytes = decompress_into(data, output)
        except cramjam.DecompressionError as error:
            if _OUTPUT_FULL not in str(error):
                raise InvalidRecord(f"compressed records are malformed: {error}") from error
            if capacity == size_bytes_max:
                raise _too_large(size_bytes_max) from error
            guess = capacity * _GROWTH
        else:
            return memoryview(output)[:size_bytes]


def _too_large(size_bytes_max: int) -> InvalidRecord:
    return InvalidRecord(f"records inflate to more than {size_bytes_max} bytes")


def _compress_xerial(data: memoryview) -> bytes:
    """snappy-java's framing, which every Kafka client reads (librdkafka, Java, Sarama, ...)."""
    parts = [_XERIAL_HEADER]
    for start in range(0, len(data), _XERIAL_BLOCK_SIZE_BYTES):
        block = bytes(cramjam.snappy.compress_raw(data[start : start + _XERIAL_BLOCK_SIZE_BYTES]))
        parts += (_XERIAL_LENGTH.pack(len(block)), block)
    return b"".join(parts)


def _decompress_snappy(data: memoryview, size_bytes_max: int) -> bytearray:
    """Raw snappy (librdkafka) or snappy-java's framing, distinguished by the stream header."""
    output = bytearray()
    if bytes(data[: len(_XERIAL_MAGIC)]) != _XERIAL_MAGIC:
        _append_snappy_block(output, data, size_bytes_max)
        return output
    position = len(_XERIAL_HEADER)
    if len(data) < position:
        raise InvalidRecord("snappy stream header is cut")
    while position < len(data):
        if len(data) - position < _XERIAL_LENGTH.size:
            raise InvalidRecord("snappy block length is cut")
        (length,) = _XERIAL_LENGTH.unpack_from(data, position)
        position += _XERIAL_LENGTH.size
        if length > len(data) - position:
            raise InvalidRecord(f"snappy block of {length} bytes is cut")
        _append_snappy_block(output, data[position : position + length], size_bytes_max)
        position += length
    return output


def _append_snappy_block(output: bytearray, block: memoryview, size_bytes_max: int) -> None:
    """Decompresses one raw block and appends it to `output`, whose size counts towards the limit."""
    try:
        size_bytes = cramjam.snappy.decompress_raw_len(block)
        if len(output) + size_bytes > size_bytes_max:
            raise _too_large(size_bytes_max)
        if size_bytes > len(block) * _SNAPPY_RATIO_MAX:
            raise InvalidRecord(f"snappy block of {len(block)} bytes claims {size_bytes} bytes")
        inflated = bytearray(size_bytes)
        cramjam.snappy.decompress_raw_into(block, inflated)
    except cramjam.DecompressionError as error:
        raise InvalidRecord(f"compressed records are malformed: {error}") from error
    output += inflated
