"""Keys and values of `__consumer_offsets`, byte for byte as Apache Kafka writes them.

Kafka's own tools can read our topic, and a real Kafka's records can be replayed here. A key begins
with its kind (0 and 1 offset commit, 2 group metadata; higher ones belong to KIP-848 and KIP-932 and
are ignored), a value with its version. Read: OffsetCommitValue 0 to 4 and GroupMetadataValue 0 to 4.
Written, as by Kafka 4.3's GroupCoordinatorRecordHelpers:

- OffsetCommitValue 4, the first one with the topic id (a tagged field, which brokers from 3.4 on
  skip, so a downgrade is possible); version 1 if the client set its own retention, because no later
  version has the field.
- GroupMetadataValue 3. Kafka can read the flexible version 4 but does not write it yet: a
  downgrade must stay possible (KIP-915).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias
from uuid import UUID

from kafkaesque.model.errors import CorruptMessage
from kafkaesque.model.ids import (
    NO_EPOCH,
    NO_TIMESTAMP,
    NO_TOPIC_ID,
    LeaderEpoch,
    Offset,
    PartitionIndex,
    TimestampMs,
    TopicId,
)
from kafkaesque.records.log_fields import (
    INT16,
    INT32,
    INT64,
    LogRecord,
    Reader,
    compact_string,
    data,
    nullable_string,
    string,
)

_OFFSET_COMMIT_KEYS: Final = (0, 1)
_OFFSET_COMMIT_KEY_WRITTEN: Final = 1
_GROUP_METADATA_KEY: Final = 2
_VALUE_VERSION_MAX: Final = 4
_FLEXIBLE_FROM: Final = 4
_TOPIC_ID_TAG: Final = 0
_GROUP_METADATA_VALUE_WRITTEN: Final = 3
_MEMBER_BYTES_MIN: Final = 15
"""A member with every field empty in the most compact version (flexible)."""


class OffsetKey(NamedTuple):
    group_id: str
    topic: str
    partition: PartitionIndex


@dataclass(frozen=True, slots=True)
class OffsetValue:
    offset: Offset
    metadata: str
    commit_timestamp_ms: TimestampMs
    leader_epoch: LeaderEpoch = NO_EPOCH
    expire_timestamp_ms: TimestampMs = NO_TIMESTAMP
    """Set only by clients that send their own retention (OffsetCommit 2 to 4)."""
    topic_id: TopicId = NO_TOPIC_ID


class GroupKey(NamedTuple):
    group_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberValue:
    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    subscription: bytes
    assignment: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupValue:
    protocol_type: str
    generation_id: int
    protocol_name: str | None
    leader_id: str | None
    state_since_ms: TimestampMs
    members: tuple[MemberValue, ...]


Key: TypeAlias = OffsetKey | GroupKey


def decode_key(key: bytes) -> Key | None:
    """The key; None for a kind that classic groups do not use."""
    reader = Reader(key)
    kind = reader.int16()
    if kind in _OFFSET_COMMIT_KEYS:
        return OffsetKey(reader.string(), reader.string(), PartitionIndex(reader.int32()))
    if kind == _GROUP_METADATA_KEY:
        return GroupKey(reader.string())
    return None


def encode_offset_key(key: OffsetKey) -> bytes:
    return b"".join(
        (
            INT16.pack(_OFFSET_COMMIT_KEY_WRITTEN),
            string(key.group_id),
            string(key.topic),
            INT32.pack(key.partition),
        )
    )


def encode_offset(key: OffsetKey, value: OffsetValue) -> LogRecord:
    if value.expire_timestamp_ms != NO_TIMESTAMP:
        encoded = b"".join(
            (
                INT16.pack(1),
                INT64.pack(value.offset),
                string(value.metadata),
                INT64.pack(value.commit_timestamp_ms),
                INT64.pack(value.expire_timestamp_ms),
            )
        )
    else:
        encoded = b"".join(
            (
                INT16.pack(_FLEXIBLE_FROM),
                INT64.pack(value.offset),
                INT32.pack(value.leader_epoch),
                compact_string(value.metadata),
                INT64.pack(value.commit_timestamp_ms),
                _topic_id_tag(value.topic_id),
            )
        )
    return LogRecord(encode_offset_key(key), encoded)


def offset_tombstone(key: OffsetKey) -> LogRecord:
    return LogRecord(encode_offset_key(key), None)


def decode_offset(value: bytes) -> OffsetValue:
    reader = Reader(value)
    version = _version(reader, "OffsetCommitValue")
    offset = Offset(reader.int64())
    epoch = LeaderEpoch(reader.int32()) if version >= 3 else NO_EPOCH
    metadata = reader.string()
    committed_ms = TimestampMs(reader.int64())
    expire_ms = TimestampMs(reader.int64()) if version == 1 else NO_TIMESTAMP
    topic_id = reader.tagged_fields().get(_TOPIC_ID_TAG, NO_TOPIC_ID.bytes)
    if len(topic_id) != 16:
        raise CorruptMessage(f"the topic id of an offset record has {len(topic_id)} bytes")
    return OffsetValue(
        offset, metadata, committed_ms, epoch, expire_ms, TopicId(UUID(bytes=topic_id))
    )


def encode_group_key(key: GroupKey) -> bytes:
    return INT16.pack(_GROUP_METADATA_KEY) + string(key.group_id)


def encode_group(key: GroupKey, value: GroupValue) -> LogRecord:
    parts = [
        INT16.pack(_GROUP_METADATA_VALUE_WRITTEN),
        string(value.protocol_type),
        INT32.pack(value.generation_id),
        nullable_string(value.protocol_name),
        nullable_string(value.leader_id),
        INT64.pack(value.state_since_ms),
        INT32.pack(len(value.members)),
    ]
    for member in value.members:
        parts += (
            string(member.member_id),
            nullable_string(member.group_instance_id),
            string(member.client_id),
            string(member.client_host),
            INT32.pack(member.rebalance_timeout_ms),
            INT32.pack(member.session_timeout_ms),
            data(member.subscription),
            data(member.assignment),
        )
    return LogRecord(encode_group_key(key), b"".join(parts))


def group_tombstone(key: GroupKey) -> LogRecord:
    return LogRecord(encode_group_key(key), None)


def decode_group(value: bytes) -> GroupValue:
    reader = Reader(value)
    version = _version(reader, "GroupMetadataValue")
    protocol_type = reader.string()
    generation_id = reader.int32()
    protocol_name = reader.nullable_string()
    leader_id = reader.nullable_string()
    since_ms = TimestampMs(reader.int64()) if version >= 2 else NO_TIMESTAMP
    count = reader.count(element_bytes_min=_MEMBER_BYTES_MIN)
    members = tuple(_decode_member(reader, version) for _ in range(count))
    reader.tagged_fields()
    return GroupValue(
        protocol_type=protocol_type,
        generation_id=generation_id,
        protocol_name=protocol_name,
        leader_id=leader_id,
        state_since_ms=since_ms,
        members=members,
    )


def _decode_member(reader: Reader, version: int) -> MemberValue:
    member_id = reader.string()
    instance_id = reader.nullable_string() if version >= 3 else None
    client_id = reader.string()
    client_host = reader.string()
    rebalance_timeout_ms = reader.int32() if version >= 1 else -1
    session_timeout_ms = reader.int32()
    subscription = reader.data()
    assignment = reader.data()
    reader.tagged_fields()
    return MemberValue(
        member_id=member_id,
        group_instance_id=instance_id,
        client_id=client_id,
        client_host=client_host,
        rebalance_timeout_ms=rebalance_timeout_ms,
        session_timeout_ms=session_timeout_ms,
        subscription=subscription,
        assignment=assignment,
    )


def _version(reader: Reader, name: str) -> int:
    version = reader.int16()
    if not 0 <= version <= _VALUE_VERSION_MAX:
        raise CorruptMessage(
            f"{name} has version {version}; supported are 0 to {_VALUE_VERSION_MAX}"
        )
    reader.flexible = version >= _FLEXIBLE_FROM
    return version


def _topic_id_tag(topic_id: TopicId) -> bytes:
    """The tagged fields of OffsetCommitValue; a default is omitted."""
    if topic_id == NO_TOPIC_ID:
        return b"\0"
    return bytes((1, _TOPIC_ID_TAG, len(topic_id.bytes))) + topic_id.bytes
