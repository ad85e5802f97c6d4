"""The control batch that ends a transaction in a partition. Pure; the bytes are Kafka's.

Key: version 0, kind (0 abort, 1 commit). Value: version 0, the coordinator's epoch
(org.apache.kafka.common.record.EndTransactionMarker).
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from kafkaesque.model.errors import CorruptMessage, KafkaError
from kafkaesque.model.ids import Offset, ProducerEpoch, ProducerId, TimestampMs
from kafkaesque.records.batch import Buffer
from kafkaesque.records.codec import Record, decode_batch, encode_batch

_KEY: Final = struct.Struct(">hh")
_VALUE: Final = struct.Struct(">hi")
_VERSION: Final = 0
_ABORT, _COMMIT = 0, 1


class Marker(NamedTuple):
    is_commit: bool
    coordinator_epoch: int


def encode_marker(
    producer_id: ProducerId, epoch: ProducerEpoch, marker: Marker, now_ms: TimestampMs
) -> bytearray:
    key = _KEY.pack(_VERSION, _COMMIT if marker.is_commit else _ABORT)
    value = _VALUE.pack(_VERSION, marker.coordinator_epoch)
    return encode_batch(
        [Record(Offset(0), now_ms, key, value)],
        producer_id=producer_id,
        producer_epoch=epoch,
        is_transactional=True,
        is_control=True,
    )


def decode_marker(batch: Buffer) -> Marker | None:
    """Returns the marker in a control batch; None if the batch is of another kind or was emptied by
    the log cleaner."""
    try:
        records = decode_batch(batch)
    except KafkaError as error:
        raise CorruptMessage(f"a control batch cannot be read: {error}") from error
    return decode_marker_record(records[0]) if records else None


def decode_marker_record(record: Record) -> Marker | None:
    key, value = record.key or b"", record.value or b""
    if len(key) < _KEY.size or len(value) < _VALUE.size:
        return None
    _, kind = _KEY.unpack_from(key)
    if kind not in (_ABORT, _COMMIT):
        return None
    _, coordinator_epoch = _VALUE.unpack_from(value)
    return Marker(kind == _COMMIT, coordinator_epoch)
