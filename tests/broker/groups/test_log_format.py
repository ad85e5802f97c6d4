"""Our records against those that Apache Kafka's own classes wrote (kafka_records.json)."""

from __future__ import annotations

import contextlib
import json
from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkaesque.broker.groups.log_format import (
    GroupKey,
    GroupValue,
    MemberValue,
    OffsetKey,
    OffsetValue,
    decode_group,
    decode_key,
    decode_offset,
    encode_group,
    encode_offset,
    group_tombstone,
    offset_tombstone,
)
from kafkaesque.model.errors import CorruptMessage
from kafkaesque.model.ids import (
    NO_EPOCH,
    NO_TIMESTAMP,
    LeaderEpoch,
    Offset,
    PartitionIndex,
    TimestampMs,
    TopicId,
)

KAFKA = {
    name: bytes.fromhex(text)
    for name, text in json.loads((Path(__file__).parent / "kafka_records.json").read_text()).items()
    if name != "about"
}
OFFSET_KEY = OffsetKey("grüppe", "orders", PartitionIndex(7))
GROUP_KEY = GroupKey("grüppe")
OFFSET = OffsetValue(
    Offset(123456789012), "nöte", TimestampMs(1700000000123), LeaderEpoch(9), NO_TIMESTAMP
)
TOPIC_ID = TopicId(UUID("01020304-0506-0708-090a-0b0c0d0e0f10"))
GROUP = GroupValue(
    protocol_type="consumer",
    generation_id=5,
    protocol_name="range",
    leader_id="c-1",
    state_since_ms=TimestampMs(1700000000456),
    members=(
        MemberValue(
            member_id="c-1",
            group_instance_id=None,
            client_id="c",
            client_host="/10.0.0.1",
            rebalance_timeout_ms=300000,
            session_timeout_ms=45000,
            subscription=b"\0\1\2",
            assignment=b"\3\4",
        ),
        MemberValue(
            member_id="i-2",
            group_instance_id="i",
            client_id="d",
            client_host="/10.0.0.2",
            rebalance_timeout_ms=60000,
            session_timeout_ms=10000,
            subscription=b"",
            assignment=b"",
        ),
    ),
)
EMPTY = GroupValue(
    protocol_type="",
    generation_id=0,
    protocol_name=None,
    leader_id=None,
    state_since_ms=TimestampMs(1700000000456),
    members=(),
)


@pytest.mark.parametrize("kind", [0, 1])
def test_offset_key_of_kafka_is_read(kind: int) -> None:
    assert decode_key(KAFKA[f"offset_key_{kind}"]) == OFFSET_KEY


def test_group_key_of_kafka_is_read() -> None:
    assert decode_key(KAFKA["group_key_2"]) == GROUP_KEY


@pytest.mark.parametrize("kind", [3, 8, 14, 99])
def test_key_of_another_protocol_is_passed_over(kind: int) -> None:
    assert decode_key(kind.to_bytes(2, "big") + b"whatever") is None


@pytest.mark.parametrize("version", range(5))
def test_offset_value_of_kafka_is_read(version: int) -> None:
    expected = OFFSET if version >= 3 else replace(OFFSET, leader_epoch=NO_EPOCH)
    if version == 1:
        expected = replace(expected, expire_timestamp_ms=TimestampMs(1700000600123))
    assert decode_offset(KAFKA[f"offset_value_{version}"]) == expected


def test_offset_value_of_kafka_with_topic_id_is_read() -> None:
    assert decode_offset(KAFKA["offset_value_4_topic_id"]) == replace(OFFSET, topic_id=TOPIC_ID)


@pytest.mark.parametrize("version", range(5))
def test_group_value_of_kafka_is_read(version: int) -> None:
    seen = decode_group(KAFKA[f"group_value_{version}"])
    first, second = GROUP.members
    if version < 1:
        first = replace(first, rebalance_timeout_ms=-1)
        second = replace(second, rebalance_timeout_ms=-1)
    if version < 3:
        second = replace(second, group_instance_id=None)
    since_ms = GROUP.state_since_ms if version >= 2 else NO_TIMESTAMP
    assert seen == replace(GROUP, members=(first, second), state_since_ms=since_ms)


@pytest.mark.parametrize("version", range(5))
def test_empty_group_value_of_kafka_is_read(version: int) -> None:
    since_ms = EMPTY.state_since_ms if version >= 2 else NO_TIMESTAMP
    expected = replace(EMPTY, state_since_ms=since_ms)
    assert decode_group(KAFKA[f"empty_group_value_{version}"]) == expected


def test_offset_record_is_written_as_kafka_4_3_writes_it() -> None:
    record = encode_offset(OFFSET_KEY, OFFSET)
    assert record == (KAFKA["offset_key_1"], KAFKA["offset_value_4"])
    record = encode_offset(OFFSET_KEY, replace(OFFSET, topic_id=TOPIC_ID))
    assert record.value == KAFKA["offset_value_4_topic_id"]


def test_offset_record_with_expiry_is_written_in_version_1() -> None:
    value = replace(OFFSET, expire_timestamp_ms=TimestampMs(1700000600123))
    assert encode_offset(OFFSET_KEY, value).value == KAFKA["offset_value_1"]


def test_group_record_is_written_as_kafka_4_3_writes_it() -> None:
    assert encode_group(GROUP_KEY, GROUP) == (KAFKA["group_key_2"], KAFKA["group_value_3"])
    assert encode_group(GROUP_KEY, EMPTY).value == KAFKA["empty_group_value_3"]


def test_tombstones_have_the_key_alone() -> None:
    assert offset_tombstone(OFFSET_KEY) == (KAFKA["offset_key_1"], None)
    assert group_tombstone(GROUP_KEY) == (KAFKA["group_key_2"], None)


@pytest.mark.parametrize("version", [-1, 5])
def test_value_of_unknown_version_is_corrupt(version: int) -> None:
    value = version.to_bytes(2, "big", signed=True) + KAFKA["offset_value_3"][2:]
    with pytest.raises(CorruptMessage, match="version"):
        decode_offset(value)
    with pytest.raises(CorruptMessage, match="version"):
        decode_group(value)


@pytest.mark.parametrize("name", sorted(KAFKA))
def test_record_cut_anywhere_is_corrupt(name: str) -> None:
    decode = decode_group if "group_value" in name else decode_offset
    for length in range(len(KAFKA[name])):
        with pytest.raises(CorruptMessage):
            (decode_key if "key" in name else decode)(KAFKA[name][:length])


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(sorted(KAFKA)), st.data())
def test_damaged_record_is_read_or_refused_but_nothing_else(name: str, data: st.DataObject) -> None:
    damaged = bytearray(KAFKA[name])
    for _ in range(data.draw(st.integers(1, 3))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    for decode in (decode_key, decode_offset, decode_group):
        with contextlib.suppress(CorruptMessage):
            decode(bytes(damaged))


texts = st.text(max_size=20)
int32 = st.integers(-(2**31), 2**31 - 1)
int64 = st.integers(-(2**63), 2**63 - 1)
members = st.builds(
    MemberValue,
    member_id=texts,
    group_instance_id=st.none() | texts,
    client_id=texts,
    client_host=texts,
    rebalance_timeout_ms=int32,
    session_timeout_ms=int32,
    subscription=st.binary(max_size=300),
    assignment=st.binary(max_size=300),
)


@settings(max_examples=100, deadline=None)
@given(
    texts,
    st.builds(
        GroupValue,
        protocol_type=texts,
        generation_id=int32,
        protocol_name=st.none() | texts,
        leader_id=st.none() | texts,
        state_since_ms=int64,
        members=st.lists(members, max_size=4).map(tuple),
    ),
)
def test_group_record_is_read_back_as_written(group_id: str, value: GroupValue) -> None:
    record = encode_group(GroupKey(group_id), value)
    assert decode_key(record.key) == GroupKey(group_id)
    assert decode_group(record.value or b"") == value


@settings(max_examples=100, deadline=None)
@given(int64, st.text(max_size=300), int64, int32, st.uuids())
def test_offset_record_is_read_back_as_written(
    offset: int, metadata: str, committed_ms: int, epoch: int, topic_id: UUID
) -> None:
    value = OffsetValue(
        Offset(offset),
        metadata,
        TimestampMs(committed_ms),
        LeaderEpoch(epoch),
        NO_TIMESTAMP,
        TopicId(topic_id),
    )
    record = encode_offset(OFFSET_KEY, value)
    assert decode_offset(record.value or b"") == value
