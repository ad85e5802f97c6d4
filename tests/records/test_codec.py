"""Records inside batches: against other clients' code, and against damage."""

from __future__ import annotations

import contextlib
import struct
import warnings
from typing import Any

import pytest
from aiokafka.record.default_records import DefaultRecordBatch as AiokafkaBatch
from aiokafka.record.default_records import DefaultRecordBatchBuilder as AiokafkaBuilder
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkaesque.model.errors import InvalidRecord, KafkaError
from kafkaesque.model.ids import ProducerEpoch, ProducerId
from kafkaesque.records.batch import Codec, read_header, reseal, stamp_append_time, verify_crc
from kafkaesque.records.codec import (
    Record,
    check_records,
    decode_batch,
    encode_batch,
    find_timestamp,
)

with warnings.catch_warnings():
    # kafka-python reads its schemas through a deprecated function of importlib when imported.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka.record.default_records import DefaultRecordBatch as KafkaPythonBatch
    from kafka.record.default_records import DefaultRecordBatchBuilder as KafkaPythonBuilder

BUILDERS = [AiokafkaBuilder, KafkaPythonBuilder]
READERS = [AiokafkaBatch, KafkaPythonBatch]
IDS = ["aiokafka", "kafka-python"]

RECORDS = [
    Record(0, 1_700_000_000_000, b"key", b"value", (("a", b"1"), ("b", None), ("", b""))),
    Record(1, 1_700_000_000_007, None, b"x" * 5000),
    Record(2, 1_699_999_999_000, b"", None),
    Record(3, 1_700_000_000_003, b"k" * 70, b"", (("häder", b"\x00" * 200),)),
]

timestamps = st.integers(-1, 2**53)
blobs = st.none() | st.binary(max_size=200)
headers = st.lists(st.tuples(st.text(max_size=8), blobs), max_size=4).map(tuple)
record_lists = st.lists(st.tuples(timestamps, blobs, blobs, headers), min_size=1, max_size=30).map(
    lambda rows: [Record(offset, *row) for offset, row in enumerate(rows)]
)


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize("builder_class", BUILDERS, ids=IDS)
def test_batch_built_by_another_client_is_read(builder_class: Any, codec: Codec) -> None:
    builder = builder_class(2, int(codec), 1, 7, 3, 11, 1_000_000)
    for record in RECORDS:
        builder.append(
            record.offset, record.timestamp, record.key, record.value, list(record.headers)
        )
    batch = bytes(builder.build())
    header = read_header(batch)
    verify_crc(batch, header)
    assert decode_batch(batch) == RECORDS
    assert (header.codec, header.record_count, header.is_transactional) == (codec, 4, True)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7, 3, 11)
    assert check_records(batch) == (1_700_000_000_007, 1)


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize("reader_class", READERS, ids=IDS)
def test_batch_of_ours_is_read_by_another_client(reader_class: Any, codec: Codec) -> None:
    batch = encode_batch(
        RECORDS,
        base_offset=100,
        codec=codec,
        producer_id=ProducerId(7),
        producer_epoch=ProducerEpoch(3),
        base_sequence=11,
        is_control=False,
    )
    reader = reader_class(bytes(batch))
    assert reader.validate_crc()
    assert [
        Record(r.offset - 100, r.timestamp, r.key, r.value, tuple(r.headers)) for r in reader
    ] == RECORDS
    assert (reader.base_offset, reader.next_offset) == (100, 104)
    assert (reader.producer_id, reader.producer_epoch, reader.base_sequence) == (7, 3, 11)


@settings(deadline=None, max_examples=100)
@given(records=record_lists, codec=st.sampled_from(Codec), base=st.integers(0, 2**40))
def test_any_records_survive_a_round_trip(records: list[Record], codec: Codec, base: int) -> None:
    batch = encode_batch(records, codec=codec, base_offset=base)
    verify_crc(batch, read_header(batch))
    expected = [r._replace(offset=base + i) for i, r in enumerate(records)]
    assert decode_batch(memoryview(b"pad" + batch), 3) == expected
    latest = max(records, key=lambda r: r.timestamp)
    assert check_records(batch) == (latest.timestamp, base + latest.offset)


def test_compacted_batch_keeps_its_offsets() -> None:
    kept = [RECORDS[0]._replace(offset=103), RECORDS[1]._replace(offset=109)]
    batch = encode_batch(kept, base_offset=100, keep_offsets=True)
    assert decode_batch(batch) == kept
    assert read_header(batch).next_offset == 110
    check_records(batch, dense=False)
    with pytest.raises(InvalidRecord, match="offset delta"):
        check_records(batch)


def test_records_without_key_are_rejected_where_keys_are_needed() -> None:
    check_records(encode_batch(RECORDS[2:]), keys_required=True)
    with pytest.raises(InvalidRecord, match="without key"):
        check_records(encode_batch(RECORDS), keys_required=True)


@pytest.mark.parametrize(
    ("timestamp", "found"),
    [
        (0, (1_700_000_000_000, 0)),
        (1_700_000_000_001, (1_700_000_000_007, 1)),
        (1_700_000_000_007, (1_700_000_000_007, 1)),
        (1_700_000_000_008, None),
    ],
)
def test_first_record_at_or_after_a_time_is_found(timestamp: int, found: object) -> None:
    assert find_timestamp(encode_batch(RECORDS, codec=Codec.ZSTD), 0, timestamp) == found


def test_time_lookup_in_an_append_time_batch_gives_its_first_record() -> None:
    batch = encode_batch(RECORDS, base_offset=50)
    stamp_append_time(batch, 0, 42)
    assert find_timestamp(batch, 0, 42) == (42, 50)
    assert find_timestamp(batch, 0, 43) is None


def test_header_key_that_is_not_utf8_survives() -> None:
    builder = KafkaPythonBuilder(2, 0, 0, -1, -1, -1, 10_000)
    builder.append(0, 5, None, b"v", [("abc", b"x")])
    batch = bytearray(builder.build())
    batch[batch.index(b"abc")] = 0xFF
    reseal(batch, 0, len(batch))
    decoded = decode_batch(batch)
    assert encode_batch(decoded)[61:] == batch[61:]


@pytest.mark.parametrize(
    ("body", "count"),
    [
        (b"", 1),
        (b"\x0e\x00\x00\x00\x01\x01\x00", 1),
        (b"\x0a\x00\x00\x00\x01\x01\x00", 1),
        (b"\x0c\x00\x00\x00\x01\x01\x00\x00", 1),
        (b"\x0c\x00\x00\x00\x01\x01\x00", 2**31 - 1),
        (b"\x0c\x00\x00\x00\x01\x01\x01", 1),
        (b"\x0c\x00\x00\x00\x01\x01\x7e", 1),
        (b"\x0c\x00\x00\x00\x7e\x01\x00", 1),
        (b"\x0c\x00\x00\x00\x01\x7e\x00", 1),
        (b"\x0c\x00\x00\x02\x01\x01\x00", 1),
        (b"\xff\xff\xff\xff\xff\xff\xff", 1),
        (b"\xff\xff\xff\xff\x7f\x00\x00\x00\x00\x00", 1),
        (b"\x0e\x00\x00\x00\x01\x01\x02\x01", 1),
    ],
    ids=[
        "nothing",
        "runs-past-batch",
        "shorter-than-it-says",
        "bytes-behind",
        "count-absurd",
        "headers-negative",
        "headers-absurd",
        "key-past-record",
        "value-past-record",
        "delta-past-last",
        "varint-endless",
        "varint-33-bits",
        "header-key-null",
    ],
)
def test_malformed_records_are_invalid(body: bytes, count: int) -> None:
    batch = encode_batch([Record(0, 0, None, None)])
    assert bytes(batch[61:]) == b"\x0c\x00\x00\x00\x01\x01\x00"
    batch[61:] = body
    struct.pack_into(">i", batch, 8, len(batch) - 12)
    struct.pack_into(">i", batch, 57, count)
    for look in (decode_batch, check_records, lambda b: find_timestamp(b, 0, 10)):
        with pytest.raises(InvalidRecord):
            look(batch)


def test_record_that_swallows_the_next_one_is_invalid() -> None:
    batch = encode_batch([Record(0, 0, None, None), Record(1, 0, None, None)])
    assert batch[61] == 6 << 1
    batch[61] = 13 << 1
    for look in (decode_batch, check_records):
        with pytest.raises(InvalidRecord, match="do not fill"):
            look(batch)


def test_count_that_the_bytes_cannot_hold_is_rejected_before_any_work() -> None:
    batch = encode_batch(RECORDS)
    struct.pack_into(">i", batch, 57, 2**31 - 1)
    with pytest.raises(InvalidRecord, match="2147483647 records in"):
        check_records(batch)


def test_timestamp_that_overflows_is_invalid() -> None:
    batch = encode_batch([Record(0, 0, None, None), Record(1, 2**62, None, None)])
    struct.pack_into(">q", batch, 27, 2**62)
    with pytest.raises(InvalidRecord):
        decode_batch(batch)


def test_last_offset_delta_must_match_the_count_of_a_produced_batch() -> None:
    batch = encode_batch(RECORDS)
    struct.pack_into(">i", batch, 23, 9)
    with pytest.raises(InvalidRecord):
        check_records(batch)
    check_records(batch, dense=False)


@settings(deadline=None, max_examples=400)
@given(records=record_lists, codec=st.sampled_from(Codec), data=st.data())
def test_damaged_batch_raises_only_kafka_errors(
    records: list[Record], codec: Codec, data: st.DataObject
) -> None:
    batch = encode_batch(records, codec=codec)
    for _ in range(data.draw(st.integers(1, 4))):
        batch[data.draw(st.integers(0, len(batch) - 1))] = data.draw(st.integers(0, 255))
    for look in (decode_batch, check_records, lambda b: find_timestamp(b, 0, 10)):
        with contextlib.suppress(KafkaError):
            look(batch)
