"""Checks of a client's batch before it is appended."""

from __future__ import annotations

import struct
from collections.abc import Callable

import pytest

from kafkaesque.broker.partitions.rules.admission import Rules, inspect
from kafkaesque.model.errors import (
    CorruptMessage,
    InvalidRecord,
    InvalidTimestamp,
    KafkaError,
    MessageTooLarge,
    RecordListTooLarge,
    UnsupportedCompressionType,
)
from kafkaesque.model.ids import Offset, ProducerId, TimestampMs
from kafkaesque.model.settings import TopicConfig
from kafkaesque.records.batch import BatchHeader, Codec, read_header, reseal
from kafkaesque.records.codec import Record, decode_batch, encode_batch

NOW = TimestampMs(1_700_000_000_000)
HOUR_MS = 3_600_000


def admit(records: memoryview, config: TopicConfig, now_ms: TimestampMs) -> BatchHeader:
    return Rules(config, "header").admit(records, now_ms)


def sealed(
    count: int = 2, *, timestamp: int = NOW, key: bytes | None = b"k", **more: object
) -> bytearray:
    records = [Record(Offset(0), TimestampMs(timestamp), key, b"value")] * count
    return encode_batch(records, **more)  # type: ignore[arg-type]


def changed(position: int, layout: str, value: int) -> Callable[[], bytearray]:
    """A sealed batch with one header field changed and the checksum recomputed."""

    def make() -> bytearray:
        data = sealed()
        struct.pack_into(layout, data, position, value)
        reseal(data, 0, len(data))
        return data

    return make


def test_sound_batch_is_admitted() -> None:
    data = memoryview(sealed())
    assert admit(data, TopicConfig(), NOW) == read_header(data)


@pytest.mark.parametrize(
    ("make", "refusal"),
    [
        pytest.param(lambda: bytearray(), InvalidRecord, id="no batch"),
        pytest.param(lambda: sealed() + sealed(), InvalidRecord, id="two batches"),
        pytest.param(lambda: sealed()[:-1], InvalidRecord, id="cut short"),
        pytest.param(lambda: sealed()[:20], InvalidRecord, id="cut in the header"),
        pytest.param(changed(16, ">b", 1), InvalidRecord, id="old format"),
        pytest.param(lambda: sealed()[:-1] + b"!", CorruptMessage, id="checksum"),
        pytest.param(changed(0, ">q", 5), InvalidRecord, id="base offset"),
        pytest.param(changed(57, ">i", 3), InvalidRecord, id="record count"),
        pytest.param(changed(57, ">i", 0), InvalidRecord, id="no records"),
        pytest.param(changed(21, ">h", 0x20), InvalidRecord, id="control"),
        pytest.param(changed(21, ">h", 0x10), InvalidRecord, id="transactional without producer"),
        pytest.param(changed(21, ">h", 0x08), InvalidTimestamp, id="append time"),
        pytest.param(changed(21, ">h", 5), UnsupportedCompressionType, id="codec"),
        pytest.param(
            lambda: sealed(producer_id=ProducerId(1), base_sequence=-1),
            InvalidRecord,
            id="producer without sequence",
        ),
        pytest.param(
            lambda: sealed(timestamp=NOW + HOUR_MS + 1),
            InvalidTimestamp,
            id="too far in the future",
        ),
    ],
)
def test_batch_that_breaks_a_rule_is_refused(
    make: Callable[[], bytearray], refusal: type[KafkaError]
) -> None:
    with pytest.raises(refusal):
        admit(memoryview(make()), TopicConfig(), NOW)


def test_flipped_bit_anywhere_after_the_checksum_is_detected() -> None:
    data = sealed()
    for position in range(21, len(data)):
        data[position] ^= 0x01
        with pytest.raises(KafkaError):
            admit(memoryview(data), TopicConfig(), NOW)
        data[position] ^= 0x01


def test_batch_may_be_exactly_as_large_as_allowed() -> None:
    data = memoryview(sealed())
    admit(data, TopicConfig(max_message_bytes=len(data)), NOW)
    with pytest.raises(MessageTooLarge):
        admit(data, TopicConfig(max_message_bytes=len(data) - 1), NOW)


def test_batch_larger_than_a_segment_is_refused() -> None:
    data = memoryview(sealed())
    with pytest.raises(RecordListTooLarge):
        admit(data, TopicConfig(segment_bytes=len(data) - 1), NOW)


def test_old_timestamp_is_refused_only_if_the_topic_limits_it() -> None:
    data = memoryview(sealed(timestamp=NOW - 11))
    admit(data, TopicConfig(), NOW)
    with pytest.raises(InvalidTimestamp):
        admit(data, TopicConfig(message_timestamp_before_max_ms=10), NOW)


def test_append_time_topic_ignores_timestamps() -> None:
    data = memoryview(sealed(timestamp=NOW + 10 * HOUR_MS))
    admit(data, TopicConfig(message_timestamp_type="LogAppendTime"), NOW)


def test_records_are_inspected_only_if_a_setting_needs_it() -> None:
    header = read_header(sealed())
    assert not Rules(TopicConfig(), "header").needs_inspection(header)
    assert Rules(TopicConfig(), "full").needs_inspection(header)
    assert Rules(TopicConfig(cleanup_policy=("compact",)), "header").needs_inspection(header)
    assert Rules(TopicConfig(compression_type="zstd"), "header").needs_inspection(header)
    assert not Rules(TopicConfig(compression_type="uncompressed"), "header").needs_inspection(
        header
    )


def test_compacted_topic_refuses_keyless_records_and_names_them() -> None:
    with pytest.raises(InvalidRecord) as refusal:
        inspect(memoryview(sealed(key=None)), TopicConfig(cleanup_policy=("compact",)))
    assert [index for index, _ in refusal.value.records] == [0, 1]


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_topic_with_a_codec_stores_every_batch_in_it(codec: str) -> None:
    stored = inspect(memoryview(sealed(5)), TopicConfig(compression_type=codec))
    assert Codec(read_header(stored).codec).name.lower() == codec
    assert [r.value for r in decode_batch(stored)] == [b"value"] * 5


def test_recompressed_batch_keeps_its_producer() -> None:
    data = sealed(producer_id=ProducerId(9), producer_epoch=3, base_sequence=17)
    header = read_header(inspect(memoryview(data), TopicConfig(compression_type="lz4")))
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (9, 3, 17)
