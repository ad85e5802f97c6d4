"""Keys and values of `__transaction_state`, byte for byte as Apache Kafka writes them.

Kafka's own tools can read our topic, and a real Kafka's records can be replayed here. Read:
TransactionLogKey 0 and TransactionLogValue 0 and 1; written: 0 and 1, as by Kafka from
`transaction.version` 1 on. Version 1 is flexible: its three tagged fields are written only if they
differ from their defaults.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from kafkaesque.broker.transactions.types import OLD_FLOW, TransactionState
from kafkaesque.model.errors import CorruptMessage
from kafkaesque.model.ids import (
    NO_PRODUCER,
    PartitionIndex,
    ProducerEpoch,
    ProducerId,
    TimestampMs,
    TopicPartition,
)
from kafkaesque.records.log_fields import (
    INT16,
    INT32,
    INT64,
    LogRecord,
    Reader,
    compact_string,
    string,
    varint,
)

_KEY_VERSION: Final = 0
_VALUE_WRITTEN: Final = 1
_HEAD: Final = struct.Struct(">qhib")
"""Producer id, epoch, timeout, state."""
_TIMES: Final = struct.Struct(">qq")
_PREVIOUS_TAG, _NEXT_TAG, _FLOW_TAG = 0, 1, 2
_TOPIC_BYTES_MIN: Final = 3
"""A topic without name and partitions in the most compact version (flexible)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionValue:
    producer_id: ProducerId
    epoch: ProducerEpoch
    timeout_ms: int
    state: TransactionState
    partitions: frozenset[TopicPartition]
    updated_ms: TimestampMs
    started_ms: TimestampMs
    previous_producer_id: ProducerId = NO_PRODUCER
    next_producer_id: ProducerId = NO_PRODUCER
    flow: int = OLD_FLOW


# -- keys -----------------------------------------------------------------------------------------


def encode_key(transactional_id: str) -> bytes:
    return INT16.pack(_KEY_VERSION) + string(transactional_id)


def decode_key(key: bytes) -> str | None:
    """The transactional id; None for an unknown kind of key."""
    reader = Reader(key)
    return reader.string() if reader.int16() == _KEY_VERSION else None


def tombstone(transactional_id: str) -> LogRecord:
    return LogRecord(encode_key(transactional_id), None)


# -- values ---------------------------------------------------------------------------------------


def encode(transactional_id: str, value: TransactionValue) -> LogRecord:
    parts = [
        INT16.pack(_VALUE_WRITTEN),
        _HEAD.pack(value.producer_id, value.epoch, value.timeout_ms, value.state),
        _encode_partitions(value.partitions, value.state),
        _TIMES.pack(value.updated_ms, value.started_ms),
        _encode_tags(value),
    ]
    return LogRecord(encode_key(transactional_id), b"".join(parts))


def _encode_partitions(partitions: Iterable[TopicPartition], state: TransactionState) -> bytes:
    """Null in the state Empty, as in Kafka; else by topic."""
    if state is TransactionState.EMPTY:
        return varint(0)
    by_topic: dict[str, list[int]] = {}
    for topic, index in sorted(partitions):
        by_topic.setdefault(topic, []).append(index)
    parts = [varint(len(by_topic) + 1)]
    for topic, indexes in by_topic.items():
        parts += [compact_string(topic), varint(len(indexes) + 1)]
        parts += [INT32.pack(index) for index in indexes]
        parts.append(varint(0))
    return b"".join(parts)


def _encode_tags(value: TransactionValue) -> bytes:
    tags = []
    if value.previous_producer_id != NO_PRODUCER:
        tags.append((_PREVIOUS_TAG, INT64.pack(value.previous_producer_id)))
    if value.next_producer_id != NO_PRODUCER:
        tags.append((_NEXT_TAG, INT64.pack(value.next_producer_id)))
    if value.flow != OLD_FLOW:
        tags.append((_FLOW_TAG, INT16.pack(value.flow)))
    parts = [varint(len(tags))]
    for tag, data in tags:
        parts += [varint(tag), varint(len(data)), data]
    return b"".join(parts)


def decode(value: bytes) -> TransactionValue:
    """Raises CorruptMessage if the bytes are malformed or of an unknown version."""
    reader = Reader(value)
    version = reader.int16()
    if version not in (0, 1):
        raise CorruptMessage(f"a transaction record has the unknown version {version}")
    reader.flexible = version >= 1
    producer_id, epoch, timeout_ms, state = _HEAD.unpack(reader.take(_HEAD.size))
    partitions = _decode_partitions(reader)
    updated_ms, started_ms = _TIMES.unpack(reader.take(_TIMES.size))
    tags = reader.tagged_fields()
    try:
        known_state = TransactionState(state)
    except ValueError:
        raise CorruptMessage(f"a transaction record has the unknown state {state}") from None
    return TransactionValue(
        producer_id=ProducerId(producer_id),
        epoch=ProducerEpoch(epoch),
        timeout_ms=timeout_ms,
        state=known_state,
        partitions=partitions,
        updated_ms=TimestampMs(updated_ms),
        started_ms=TimestampMs(started_ms),
        previous_producer_id=ProducerId(_tagged(tags, _PREVIOUS_TAG, INT64, NO_PRODUCER)),
        next_producer_id=ProducerId(_tagged(tags, _NEXT_TAG, INT64, NO_PRODUCER)),
        flow=_tagged(tags, _FLOW_TAG, INT16, OLD_FLOW),
    )


def _decode_partitions(reader: Reader) -> frozenset[TopicPartition]:
    found = []
    for _ in range(reader.nullable_count(_TOPIC_BYTES_MIN) or 0):
        topic = reader.string()
        found += [
            TopicPartition(topic, PartitionIndex(reader.int32()))
            for _ in range(reader.count(INT32.size))
        ]
        reader.tagged_fields()
    return frozenset(found)


def _tagged(tags: dict[int, bytes], tag: int, layout: struct.Struct, default: int) -> int:
    data = tags.get(tag)
    if data is None:
        return default
    if len(data) != layout.size:
        raise CorruptMessage(f"tag {tag} of a transaction record has {len(data)} bytes")
    return int(layout.unpack(data)[0])
