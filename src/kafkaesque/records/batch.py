"""The 61-byte header of a v2 record batch: read it, check it, stamp it.

The records after the header are opaque here; `records.codec` decodes them. Layout and attribute
bits: org.apache.kafka.common.record.DefaultRecordBatch.

Base offset, batch length, leader epoch and magic precede the checksummed part, so a broker assigns
offsets without changing the checksum (`stamp`). Timestamps and attributes are in the checksummed
part (`stamp_append_time` recomputes the checksum).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from enum import IntEnum
from typing import Final, NamedTuple

from kafkaesque.model.errors import CorruptMessage, UnsupportedForMessageFormat
from kafkaesque.model.ids import (
    NO_PRODUCER,
    NO_TIMESTAMP,
    LeaderEpoch,
    Offset,
    ProducerEpoch,
    ProducerId,
    TimestampMs,
)
from kafkaesque.model.limits import BATCH_SIZE_BYTES_MAX
from kafkaesque.records.crc32c import crc32c
from kafkaesque.records.layout import (
    APPEND_TIME_BIT,
    CHECKSUMMED_POSITION,
    CODEC_MASK,
    CONTROL_BIT,
    CRC_POSITION,
    EPOCH_POSITION,
    HEADER,
    HEADER_SIZE_BYTES,
    LENGTH_OVERHEAD_BYTES,
    MAGIC,
    MAGIC_POSITION,
    MAX_TIMESTAMP_POSITION,
    TRANSACTIONAL_BIT,
)
from kafkaesque.records.native import compiled

Buffer = bytes | bytearray | memoryview

SEQUENCE_MAX: Final = 2**31 - 1

_OFFSET: Final = struct.Struct(">q")
_EPOCH: Final = struct.Struct(">i")
_CRC: Final = struct.Struct(">I")
_ATTRIBUTES: Final = struct.Struct(">h")


class Codec(IntEnum):
    """The compression codec of a batch: the low three attribute bits."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


class BatchHeader(NamedTuple):
    """A decoded header. `size_bytes` is the size of the whole batch.

    size_bytes >= HEADER_SIZE_BYTES, last_offset_delta >= 0, record_count >= 0: `read_header` rejects
    anything else, so offsets computed from a header never decrease.
    """

    base_offset: Offset
    size_bytes: int
    leader_epoch: LeaderEpoch
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: TimestampMs
    max_timestamp: TimestampMs
    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    base_sequence: int
    record_count: int

    @property
    def codec(self) -> int:
        """The codec bits; a client may have set them to a number that `Codec` does not define."""
        return self.attributes & CODEC_MASK

    @property
    def uses_append_time(self) -> bool:
        """True if every record's timestamp is the batch's maximum, set by the broker.

        Only a broker may set the bit. Kafka's LogValidator answers INVALID_TIMESTAMP to a producer
        that sets it, whatever the topic's timestamp type, so nothing here needs to clear it.
        """
        return self.attributes & APPEND_TIME_BIT != 0

    @property
    def is_transactional(self) -> bool:
        return self.attributes & TRANSACTIONAL_BIT != 0

    @property
    def is_control(self) -> bool:
        return self.attributes & CONTROL_BIT != 0

    @property
    def last_offset(self) -> Offset:
        return Offset(self.base_offset + self.last_offset_delta)

    @property
    def next_offset(self) -> Offset:
        return Offset(self.base_offset + self.last_offset_delta + 1)

    @property
    def last_sequence(self) -> int:
        """The sequence of the last record: after 2^31 - 1 comes 0 (DefaultRecordBatch)."""
        if self.base_sequence < 0:
            return self.base_sequence
        return (self.base_sequence + self.last_offset_delta) & SEQUENCE_MAX


@compiled(BatchHeader, BATCH_SIZE_BYTES_MAX)
def read_header(buffer: Buffer, position: int = 0) -> BatchHeader:
    """Reads the header at `position`. The rest of the batch need not be in `buffer`."""
    available_bytes = len(buffer) - position
    if available_bytes < HEADER_SIZE_BYTES:
        _refuse_old_format(buffer, position)
        raise CorruptMessage(f"batch header needs {HEADER_SIZE_BYTES} bytes, has {available_bytes}")
    fields = HEADER.unpack_from(buffer, position)
    size_bytes = fields[1] + LENGTH_OVERHEAD_BYTES
    if fields[3] != MAGIC:
        _refuse_old_format(buffer, position)
    if not HEADER_SIZE_BYTES <= size_bytes <= BATCH_SIZE_BYTES_MAX:
        raise CorruptMessage(f"batch claims a size of {size_bytes} bytes")
    if fields[6] < 0 or fields[12] < 0 or fields[0] < 0:
        raise CorruptMessage(
            f"batch claims base offset {fields[0]}, last offset delta {fields[6]}, "
            f"{fields[12]} records"
        )
    return BatchHeader(fields[0], size_bytes, *fields[2:])


@compiled(BatchHeader, BATCH_SIZE_BYTES_MAX)
def plain_header(
    buffer: Buffer, size_bytes_max: int, earliest_ms: int, latest_ms: int
) -> BatchHeader | None:
    """Returns the header of the only batch in `buffer` if it passes all rules for producers.

    Returns None if a rule is broken or there is more than one batch; the caller then checks the rules
    one by one to report which (`partitions.rules.admission`). All rules are in one call because every
    produced batch has to pass them.
    """
    if not HEADER_SIZE_BYTES <= len(buffer) <= size_bytes_max or buffer[MAGIC_POSITION] != MAGIC:
        return None
    try:
        header = read_header(buffer)
        if header.size_bytes != len(buffer) or not _is_plain(header, earliest_ms, latest_ms):
            return None
        verify_crc(buffer, header)
    except CorruptMessage:
        return None
    return header


def _is_plain(header: BatchHeader, earliest_ms: int, latest_ms: int) -> bool:
    if header.base_offset != 0 or not 0 < header.record_count == header.last_offset_delta + 1:
        return False
    if header.is_control or header.uses_append_time or header.codec > Codec.ZSTD:
        return False
    if header.producer_id == NO_PRODUCER:
        if header.is_transactional:
            return False
    elif header.base_sequence < 0:
        return False
    times = (header.base_timestamp, header.max_timestamp)
    return all(time == NO_TIMESTAMP or earliest_ms <= time <= latest_ms for time in times)


def _refuse_old_format(buffer: Buffer, position: int) -> None:
    """Rejects formats 0 and 1, which have their magic at the same position but shorter headers."""
    if len(buffer) - position > MAGIC_POSITION and buffer[position + MAGIC_POSITION] != MAGIC:
        raise UnsupportedForMessageFormat(
            f"message format {buffer[position + MAGIC_POSITION]} is not supported, only {MAGIC}"
        )


@compiled()
def verify_crc(buffer: Buffer, header: BatchHeader, position: int = 0) -> None:
    """Raises CorruptMessage unless the whole batch is in `buffer` and matches its checksum."""
    end = position + header.size_bytes
    if end > len(buffer):
        raise CorruptMessage(
            f"batch of {header.size_bytes} bytes is cut to {len(buffer) - position} bytes"
        )
    actual = crc32c(memoryview(buffer)[position + CHECKSUMMED_POSITION : end])
    if actual != header.crc:
        raise CorruptMessage(
            f"batch checksum is {actual:#010x}, its header says {header.crc:#010x}"
        )


def iter_batches(buffer: Buffer) -> Iterator[tuple[int, BatchHeader]]:
    """Position and header of each batch. Raises CorruptMessage if the last one is incomplete."""
    position = 0
    while position < len(buffer):
        header = read_header(buffer, position)
        if position + header.size_bytes > len(buffer):
            raise CorruptMessage(
                f"batch of {header.size_bytes} bytes is cut to {len(buffer) - position} bytes"
            )
        yield position, header
        position += header.size_bytes


@compiled(BatchHeader)
def stamp(
    batch: bytearray | memoryview,
    header: BatchHeader,
    base_offset: Offset,
    leader_epoch: LeaderEpoch,
) -> BatchHeader:
    """Writes base offset and leader epoch into the batch and returns its new header.

    Neither field is covered by the checksum.
    """
    _OFFSET.pack_into(batch, 0, base_offset)
    _EPOCH.pack_into(batch, EPOCH_POSITION, leader_epoch)
    return BatchHeader(base_offset, header.size_bytes, leader_epoch, *header[3:])


def stamp_append_time(
    buffer: bytearray | memoryview, position: int, timestamp_ms: TimestampMs
) -> None:
    """Sets the timestamp of every record of the (whole) batch at `position` to `timestamp_ms`.

    A BatchHeader read before is stale afterwards: attributes, maximum timestamp and checksum have
    changed.
    """
    header = read_header(buffer, position)
    attributes_position = position + CHECKSUMMED_POSITION
    _ATTRIBUTES.pack_into(buffer, attributes_position, header.attributes | APPEND_TIME_BIT)
    _OFFSET.pack_into(buffer, position + MAX_TIMESTAMP_POSITION, timestamp_ms)
    reseal(buffer, position, header.size_bytes)


def reseal(buffer: bytearray | memoryview, position: int, size_bytes: int) -> None:
    """Recomputes and writes the checksum of the batch."""
    checksummed = memoryview(buffer)[position + CHECKSUMMED_POSITION : position + size_bytes]
    _CRC.pack_into(buffer, position + CRC_POSITION, crc32c(checksummed))
