"""Keys and values of `__transaction_state`, byte for byte as Apache Kafka writes them.

So Kafka's own tools read our topic, and a real Kafka's records can be replayed here. Read:
TransactionLogKey 0 and TransactionLogValue 0 and 1; written: 0 and 1, as Kafka does from
`transaction.version` 1 on. Version 1 is flexible: its three tagged fields are written only where
they differ from their defaults.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from kafkaesque.model.errors import CorruptMessage, check
from kafkaesque.model.ids import (
    NO_PRODUCER,
    PartitionIndex,
    ProducerEpoch,
    ProducerId,
    TimestampMs,
    TopicPartition,
)
from kafkaesque.transactions.states import TransactionState
from kafkaesque.transactions.types import OLD_FLOW, LogRecord

_KEY_VERSION: Final = 0
_VALUE_WRITTEN: Final = 1
_INT16, _INT32, _INT64 = struct.Struct(">h"), struct.Struct(">i"), struct.Struct(">q")
_HEAD: Final = struct.Struct(">qhib")
"""Producer id, epoch, timeout, state."""
_TIMES: Final = struct.Struct(">qq")
_PREVIOUS_TAG, _NEXT_TAG, _FLOW_TAG = 0, 1, 2
_VARINT_BYTES_MAX: Final = 5
_STRING_BYTES_MAX: Final = 32_767


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
    name = transactional_id.encode()
    check(len(name) <= _STRING_BYTES_MAX, "a transactional id is longer than 32767 bytes")
    return _INT16.pack(_KEY_VERSION) + _INT16.pack(len(name)) + name


def decode_key(key: bytes) -> str | None:
    """The transactional id, or None for a kind of key that is not known."""
    reader = _Reader(key)
    if reader.number(_INT16) != _KEY_VERSION:
        return None
    return reader.text(reader.number(_INT16))


def tombstone(transactional_id: str) -> LogRecord:
    return LogRecord(encode_key(transactional_id), None)


# -- values ---------------------------------------------------------------------------------------


def encode(transactional_id: str, value: TransactionValue) -> LogRecord:
    parts = [
        _INT16.pack(_VALUE_WRITTEN),
        _HEAD.pack(value.producer_id, value.epoch, value.timeout_ms, value.state),
        _encode_partitions(value.partitions, value.state),
        _TIMES.pack(value.updated_ms, value.started_ms),
        _encode_tags(value),
    ]
    return LogRecord(encode_key(transactional_id), b"".join(parts))


def _encode_partitions(partitions: Iterable[TopicPartition], state: TransactionState) -> bytes:
    """Null in the state Empty, as Kafka has it; else by topic."""
    if state is TransactionState.EMPTY:
        return _varint(0)
    by_topic: dict[str, list[int]] = {}
    for topic, index in sorted(partitions):
        by_topic.setdefault(topic, []).append(index)
    parts = [_varint(len(by_topic) + 1)]
    for topic, indexes in by_topic.items():
        name = topic.encode()
        parts += [_varint(len(name) + 1), name, _varint(len(indexes) + 1)]
        parts += [_INT32.pack(index) for index in indexes]
        parts.append(_varint(0))
    return b"".join(parts)


def _encode_tags(value: TransactionValue) -> bytes:
    tags = []
    if value.previous_producer_id != NO_PRODUCER:
        tags.append((_PREVIOUS_TAG, _INT64.pack(value.previous_producer_id)))
    if value.next_producer_id != NO_PRODUCER:
        tags.append((_NEXT_TAG, _INT64.pack(value.next_producer_id)))
    if value.flow != OLD_FLOW:
        tags.append((_FLOW_TAG, _INT16.pack(value.flow)))
    parts = [_varint(len(tags))]
    for tag, data in tags:
        parts += [_varint(tag), _varint(len(data)), data]
    return b"".join(parts)


def decode(value: bytes) -> TransactionValue:
    """CorruptMessage if the bytes are not a value of a version that we read."""
    reader = _Reader(value)
    version = reader.number(_INT16)
    if version not in (0, 1):
        raise CorruptMessage(f"a transaction record has the unknown version {version}")
    is_flexible = version >= 1
    producer_id, epoch, timeout_ms, state = _HEAD.unpack(reader.take(_HEAD.size))
    partitions = _decode_partitions(reader, is_flexible)
    updated_ms, started_ms = _TIMES.unpack(reader.take(_TIMES.size))
    tags = reader.tags() if is_flexible else {}
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
        previous_producer_id=ProducerId(_tagged(tags, _PREVIOUS_TAG, _INT64, NO_PRODUCER)),
        next_producer_id=ProducerId(_tagged(tags, _NEXT_TAG, _INT64, NO_PRODUCER)),
        flow=_tagged(tags, _FLOW_TAG, _INT16, OLD_FLOW),
    )


def _decode_partitions(reader: _Reader, is_flexible: bool) -> frozenset[TopicPartition]:
    def length(layout: struct.Struct) -> int:
        return reader.varint() - 1 if is_flexible else reader.number(layout)

    found = []
    for _ in range(length(_INT32)):
        topic = reader.text(length(_INT16))
        found += [
            TopicPartition(topic, PartitionIndex(reader.number(_INT32)))
            for _ in range(length(_INT32))
        ]
        if is_flexible:
            reader.tags()
    return frozenset(found)


def _tagged(tags: dict[int, bytes], tag: int, layout: struct.Struct, default: int) -> int:
    data = tags.get(tag)
    if data is None:
        return default
    if len(data) != layout.size:
        raise CorruptMessage(f"tag {tag} of a transaction record has {len(data)} bytes")
    return int(layout.unpack(data)[0])


def _varint(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


class _Reader:
    """Takes a record apart; CorruptMessage where it ends too early or claims nonsense."""

    __slots__ = ("_data", "_position")

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    def take(self, length: int) -> bytes:
        end = self._position + length
        if length < 0 or end > len(self._data):
            raise CorruptMessage(
                f"a transaction record of {len(self._data)} bytes ends inside a field of {length}"
            )
        taken = self._data[self._position : end]
        self._position = end
        return taken

    def number(self, layout: struct.Struct) -> int:
        return int(layout.unpack(self.take(layout.size))[0])

    def text(self, length: int) -> str:
        try:
            return self.take(length).decode()
        except UnicodeDecodeError as error:
            raise CorruptMessage(f"a transaction record has text that is not UTF-8: {error}") from (
                error
            )

    def varint(self) -> int:
        value = 0
        for number in range(_VARINT_BYTES_MAX):
            byte = self.take(1)[0]
            value |= (byte & 0x7F) << (7 * number)
            if byte < 0x80:
                return value
        raise CorruptMessage("a length of a transaction record has more than 5 bytes")

    def tags(self) -> dict[int, bytes]:
        found: dict[int, bytes] = {}
        for _ in range(self.varint()):
            tag = self.varint()
            found[tag] = self.take(self.varint())
        return found
