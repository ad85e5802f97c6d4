"""Records of __transaction_state: those of Apache Kafka byte for byte, and nothing else."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkaesque.broker.transactions.log_format import (
    TransactionValue,
    decode,
    decode_key,
    encode,
    tombstone,
)
from kafkaesque.broker.transactions.types import TransactionState
from kafkaesque.model.errors import CorruptMessage
from kafkaesque.model.ids import (
    PartitionIndex,
    ProducerEpoch,
    ProducerId,
    TimestampMs,
    TopicPartition,
)

ROWS = json.loads(Path(__file__).with_name("kafka_records.json").read_text())
"""Read from the topic of an Apache Kafka 4.3.1: librdkafka's flow, and KIP-890's."""

VERSION_0 = (
    "0000" "0000000000000007" "0003" "0000ea60" "01"
    "00000001" "000161" "00000002" "00000000" "00000005"
    "0000018bcfe56800" "0000018bcfe56801"
)  # fmt: skip


@pytest.mark.parametrize("row", ROWS, ids=range(len(ROWS)))
def test_record_of_apache_kafka_is_read_and_written_alike(row: dict[str, str]) -> None:
    key, value = bytes.fromhex(row["key"]), bytes.fromhex(row["value"])
    name = decode_key(key)
    assert name in ("old-flow", "new-flow")
    assert encode(name or "", decode(value)) == (key, value)


def test_value_of_the_first_version_is_read() -> None:
    found = decode(bytes.fromhex(VERSION_0))
    assert (found.producer_id, found.epoch, found.timeout_ms) == (7, 3, 60_000)
    assert found.state is TransactionState.ONGOING
    assert found.partitions == {("a", 0), ("a", 5)}
    assert found.started_ms == found.updated_ms + 1


values = st.builds(
    TransactionValue,
    producer_id=st.integers(0, 2**63 - 1).map(ProducerId),
    epoch=st.integers(0, 2**15 - 1).map(ProducerEpoch),
    timeout_ms=st.integers(0, 2**31 - 1),
    state=st.sampled_from([state for state in TransactionState if state]),
    partitions=st.frozensets(
        st.builds(
            TopicPartition, st.text(max_size=9), st.integers(0, 2**31 - 1).map(PartitionIndex)
        )
    ),
    updated_ms=st.integers(-1, 2**62).map(TimestampMs),
    started_ms=st.integers(-1, 2**62).map(TimestampMs),
    previous_producer_id=st.integers(-1, 2**62).map(ProducerId),
    next_producer_id=st.integers(-1, 2**62).map(ProducerId),
    flow=st.sampled_from([0, 2]),
)


@settings(max_examples=100, deadline=None)
@given(st.text(max_size=40), values)
def test_round_trip(name: str, value: TransactionValue) -> None:
    key, data = encode(name, value)
    assert decode_key(key) == name
    assert data is not None
    assert decode(data) == value
    assert tombstone(name) == (key, None)


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_damaged_value_is_corrupt_and_nothing_else(data: st.DataObject) -> None:
    value = bytearray(bytes.fromhex(data.draw(st.sampled_from(ROWS))["value"]))
    for _ in range(data.draw(st.integers(1, 3))):
        value[data.draw(st.integers(0, len(value) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(value)))
    try:
        decode(bytes(value[:cut]))
    except CorruptMessage:
        return


def test_key_of_another_kind_is_passed_over() -> None:
    assert decode_key(b"\0\5abc") is None
