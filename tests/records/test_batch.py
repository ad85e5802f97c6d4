"""The batch header: reading, rejecting, stamping."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkaesque.model.errors import CorruptMessage, UnsupportedForMessageFormat
from kafkaesque.model.ids import LeaderEpoch, Offset, ProducerEpoch, ProducerId, TimestampMs
from kafkaesque.records.batch import (
    BatchHeader,
    Codec,
    iter_batches,
    read_header,
    stamp,
    stamp_append_time,
    verify_crc,
)
from kafkaesque.records.codec import Record, decode_batch, encode_batch
from kafkaesque.records.layout import HEADER_SIZE_BYTES


def _records(count: int = 3) -> list[Record]:
    return [
        Record(Offset(i), TimestampMs(1000 + i), b"k%d" % i, b"v" * 10, (("h", b"x"),))
        for i in range(count)
    ]


def _header(**changes: int) -> BatchHeader:
    return read_header(encode_batch(_records()))._replace(**changes)


def test_header_of_a_batch_says_what_was_encoded() -> None:
    batch = encode_batch(
        _records(3),
        base_offset=Offset(77),
        codec=Codec.LZ4,
        leader_epoch=LeaderEpoch(5),
        producer_id=ProducerId(9),
        producer_epoch=ProducerEpoch(2),
        base_sequence=40,
        is_transactional=True,
    )
    header = read_header(batch)
    assert header.size_bytes == len(batch)
    assert (header.base_offset, header.last_offset, header.next_offset) == (77, 79, 80)
    assert (header.leader_epoch, header.codec, header.record_count) == (5, Codec.LZ4, 3)
    assert (header.base_timestamp, header.max_timestamp) == (1000, 1002)
    assert (header.producer_id, header.producer_epoch) == (9, 2)
    assert (header.base_sequence, header.last_sequence) == (40, 42)
    assert header.is_transactional
    assert not header.is_control
    assert not header.uses_append_time


@pytest.mark.parametrize(
    ("base", "delta", "last"),
    [
        (0, 0, 0),
        (2**31 - 1, 0, 2**31 - 1),
        (2**31 - 1, 1, 0),
        (2**31 - 2, 4, 2),
        (-1, 4, -1),
    ],
)
def test_last_sequence_wraps_after_the_largest_int(base: int, delta: int, last: int) -> None:
    assert _header(base_sequence=base, last_offset_delta=delta).last_sequence == last


@pytest.mark.parametrize("length", range(HEADER_SIZE_BYTES))
def test_buffer_shorter_than_a_header_is_corrupt(length: int) -> None:
    with pytest.raises(CorruptMessage):
        read_header(encode_batch(_records())[:length])


@pytest.mark.parametrize("magic", [0, 1, 3, 255])
def test_other_message_formats_are_named_as_unsupported(magic: int) -> None:
    batch = encode_batch(_records())
    batch[16] = magic
    with pytest.raises(UnsupportedForMessageFormat):
        read_header(batch)
    with pytest.raises(UnsupportedForMessageFormat):
        read_header(batch[:34])


@pytest.mark.parametrize(
    ("position", "format_", "value"),
    [
        (0, ">q", -1),
        (8, ">i", -1),
        (8, ">i", 48),
        (8, ">i", 2**31 - 1),
        (23, ">i", -1),
        (57, ">i", -2),
    ],
    ids=["offset", "length-1", "length-48", "length-huge", "last-delta", "count"],
)
def test_impossible_numbers_in_a_header_are_corrupt(
    position: int, format_: str, value: int
) -> None:
    batch = encode_batch(_records())
    struct.pack_into(format_, batch, position, value)
    with pytest.raises(CorruptMessage):
        read_header(batch)


def test_every_flipped_bit_after_the_checksum_is_detected() -> None:
    batch = encode_batch(_records(2))
    header = read_header(batch)
    for position in range(21, len(batch)):
        for bit in range(8):
            batch[position] ^= 1 << bit
            with pytest.raises(CorruptMessage):
                verify_crc(batch, header)
            batch[position] ^= 1 << bit
    verify_crc(batch, header)


def test_checksum_of_a_batch_larger_than_one_chunk_holds() -> None:
    batch = encode_batch([Record(Offset(0), TimestampMs(1), None, bytes(range(256)) * 1024)])
    for buffer in (batch, bytes(batch), memoryview(batch)):
        verify_crc(buffer, read_header(buffer))
    batch[-1] ^= 1
    with pytest.raises(CorruptMessage):
        verify_crc(batch, read_header(batch))


def test_batch_cut_short_fails_its_checksum() -> None:
    batch = encode_batch(_records())
    with pytest.raises(CorruptMessage, match="cut"):
        verify_crc(batch[:-1], read_header(batch))


def test_batches_in_a_buffer_are_found_one_after_another() -> None:
    first, second = encode_batch(_records(1)), encode_batch(_records(2), base_offset=Offset(1))
    found = list(iter_batches(first + second))
    assert [position for position, _ in found] == [0, len(first)]
    assert [header.base_offset for _, header in found] == [0, 1]
    with pytest.raises(CorruptMessage):
        list(iter_batches((first + second)[:-1]))
    assert list(iter_batches(b"")) == []


@settings(deadline=None, max_examples=50)
@given(st.integers(0, 2**63 - 1), st.integers(-1, 2**31 - 1))
def test_stamping_places_a_batch_and_leaves_its_checksum(offset: int, epoch: int) -> None:
    batch = bytearray(encode_batch(_records()))
    header = stamp(memoryview(batch), read_header(batch), Offset(offset), LeaderEpoch(epoch))
    assert header == read_header(batch)
    verify_crc(batch, header)
    assert (header.base_offset, header.leader_epoch) == (offset, epoch)


def test_append_time_becomes_the_timestamp_of_every_record() -> None:
    buffer = bytearray(b"other") + encode_batch(_records(), codec=Codec.GZIP)
    stamp_append_time(buffer, 5, TimestampMs(777_777))
    header = read_header(buffer, 5)
    verify_crc(buffer, header, 5)
    assert header.uses_append_time
    assert (header.max_timestamp, header.codec) == (777_777, Codec.GZIP)
    assert {record.timestamp for record in decode_batch(buffer, 5)} == {777_777}
