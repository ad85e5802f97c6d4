"""The checks on a client's batch before it may be appended. Pure rules.

A batch is judged by its header and checksum. Its records are not decoded, unless the topic is
compacted, uses another codec than the producer, or has `validation=full` (`inspect`, which the
caller runs off the event loop). Based on Kafka's LogValidator and UnifiedLog; docs/DIVERGENCE.md
lists the checks that are left out.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from kafkaesque.model.errors import (
    InvalidRecord,
    InvalidTimestamp,
    MessageTooLarge,
    RecordListTooLarge,
    UnsupportedCompressionType,
)
from kafkaesque.model.ids import NO_PRODUCER, NO_TIMESTAMP, Offset, TimestampMs
from kafkaesque.model.settings import TopicConfig
from kafkaesque.records.batch import BatchHeader, Codec, plain_header, read_header, verify_crc
from kafkaesque.records.codec import check_records, decode_batch, encode_batch
from kafkaesque.records.layout import HEADER_SIZE_BYTES, MAGIC, MAGIC_POSITION


class Appended(NamedTuple):
    """The place of an appended batch. `end_offset` is the offset after its last record."""

    base_offset: Offset
    end_offset: Offset
    append_time_ms: TimestampMs
    log_start_offset: Offset


class Trim(msgspec.Struct, frozen=True, tag="trim"):
    """A control entry: records before `offset` are deleted, on every replica."""

    offset: int


_CODECS = {
    "uncompressed": Codec.NONE,
    "gzip": Codec.GZIP,
    "snappy": Codec.SNAPPY,
    "lz4": Codec.LZ4,
    "zstd": Codec.ZSTD,
}


class Rules:
    """A topic's rules for batches, precomputed from its settings."""

    __slots__ = (
        "_after_max_ms",
        "_before_max_ms",
        "_config",
        "_size_bytes_max",
        "may_inspect",
        "uses_append_time",
        "validation",
    )

    def __init__(self, config: TopicConfig, validation: str) -> None:
        self._config = config
        self._size_bytes_max = min(config.max_message_bytes, config.segment_bytes)
        self._before_max_ms = config.message_timestamp_before_max_ms
        self._after_max_ms = config.message_timestamp_after_max_ms
        self.uses_append_time = config.uses_append_time
        self.validation = validation
        self.may_inspect = (
            validation == "full" or config.is_compacted or config.compression_type != "producer"
        )
        """False if no batch is ever decoded."""

    def admit(self, records: memoryview, now_ms: TimestampMs) -> BatchHeader:
        """Returns the header of the one batch in `records`. Raises the KafkaError that rejects
        it."""
        header = plain_header(
            records,
            self._size_bytes_max,
            now_ms - self._before_max_ms,
            now_ms + self._after_max_ms,
        )
        return _judge(records, self._config, now_ms) if header is None else header

    def needs_inspection(self, header: BatchHeader) -> bool:
        """Returns whether the records must be decoded before the append."""
        if self.validation == "full" or self._config.is_compacted:
            return True
        return self.may_inspect and _stored_codec(self._config, header) != header.codec


def _judge(records: memoryview, config: TopicConfig, now_ms: TimestampMs) -> BatchHeader:
    """Checks rule by rule, to report which one is broken."""
    header = _read_whole(records)
    if header.size_bytes > config.max_message_bytes:
        raise MessageTooLarge(
            f"The record batch has {header.size_bytes} bytes, more than max.message.bytes of "
            f"{config.max_message_bytes}"
        )
    if header.size_bytes > config.segment_bytes:
        raise RecordListTooLarge(
            f"The record batch has {header.size_bytes} bytes, more than segment.bytes of "
            f"{config.segment_bytes}"
        )
    verify_crc(records, header)
    _check_shape(header)
    if not config.uses_append_time:
        _check_timestamps(header, config, now_ms)
    return header


def _read_whole(records: memoryview) -> BatchHeader:
    """Returns the header of `records`, which must be exactly one batch of format 2."""
    if len(records) < HEADER_SIZE_BYTES:
        raise InvalidRecord("A produce request must have exactly one record batch per partition")
    if records[MAGIC_POSITION] < MAGIC:
        raise InvalidRecord(
            f"Message format {records[MAGIC_POSITION]} is not supported, only {MAGIC}"
        )
    header = read_header(records)
    if header.size_bytes != len(records):
        raise InvalidRecord("A produce request must have exactly one record batch per partition")
    return header


def _check_shape(header: BatchHeader) -> None:
    if header.base_offset != 0:
        raise InvalidRecord(
            f"The base offset of the batch should be 0, but it is {header.base_offset}"
        )
    if header.record_count <= 0 or header.last_offset_delta + 1 != header.record_count:
        raise InvalidRecord(
            f"The batch claims {header.record_count} records and a last offset delta of "
            f"{header.last_offset_delta}"
        )
    if header.is_control:
        raise InvalidRecord("Clients are not allowed to write control records")
    if header.producer_id == NO_PRODUCER:
        if header.is_transactional:
            raise InvalidRecord("A transactional batch needs a producer id")
    elif header.base_sequence < 0:
        raise InvalidRecord(
            f"Invalid sequence number {header.base_sequence} of producer {header.producer_id}"
        )
    if header.codec > Codec.ZSTD:
        raise UnsupportedCompressionType(f"Unknown compression type {header.codec}")
    if header.uses_append_time:
        raise InvalidTimestamp("A producer must not send batches with log append time")


def _check_timestamps(header: BatchHeader, config: TopicConfig, now_ms: TimestampMs) -> None:
    """Checks the header's first and greatest timestamp. Those in between are not checked."""
    earliest = now_ms - config.message_timestamp_before_max_ms
    latest = now_ms + config.message_timestamp_after_max_ms
    for timestamp in (header.base_timestamp, header.max_timestamp):
        if timestamp != NO_TIMESTAMP and not earliest <= timestamp <= latest:
            reason = (
                f"Timestamp {timestamp} is out of range. The timestamp should be within "
                f"[{earliest}, {latest}]"
            )
            # The header shows which timestamp is wrong, but its record is known only if it is the
            # first one.
            known = [(0, reason)] if timestamp == header.base_timestamp else []
            raise InvalidTimestamp(reason, known)


def inspect(records: memoryview, config: TopicConfig) -> memoryview:
    """Checks the records, and recompresses them if the topic uses another codec. CPU-bound.

    Returns the batch to append. Call it after `admit`.
    """
    header = read_header(records)
    check_records(records, keys_required=config.is_compacted)
    codec = _stored_codec(config, header)
    if codec == header.codec:
        return records
    return memoryview(
        encode_batch(
            decode_batch(records),
            codec=codec,
            producer_id=header.producer_id,
            producer_epoch=header.producer_epoch,
            base_sequence=header.base_sequence,
            is_transactional=header.is_transactional,
        )
    )


def _stored_codec(config: TopicConfig, header: BatchHeader) -> Codec:
    return _CODECS.get(config.compression_type, Codec(header.codec))
