"""Filtered batches: bytes, offsets and timestamps of kept records are unchanged."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkaesque.model.errors import InvalidRecord
from kafkaesque.model.ids import LeaderEpoch, Offset, ProducerEpoch, ProducerId, TimestampMs
from kafkaesque.records.batch import Codec, read_header, stamp_append_time, verify_crc
from kafkaesque.records.codec import Record, decode_batch, encode_batch
from kafkaesque.records.rewriting import (
    delete_horizon_ms,
    empty_batch,
    encode_selection,
    select,
)

RECORDS = st.lists(
    st.builds(
        Record,
        st.just(Offset(0)),
        st.integers(0, 2**41).map(TimestampMs),
        st.binary(max_size=200),
        st.none() | st.binary(max_size=300),
        st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=5)), max_size=2).map(
            tuple
        ),
    ),
    min_size=1,
    max_size=20,
)


def encoded(records: list[Record], codec: Codec = Codec.NONE) -> bytearray:
    return encode_batch(
        records,
        base_offset=Offset(1000),
        leader_epoch=LeaderEpoch(3),
        codec=codec,
        producer_id=ProducerId(7),
        producer_epoch=ProducerEpoch(2),
        base_sequence=40,
    )


@settings(deadline=None, max_examples=150)
@given(
    records=RECORDS,
    codec=st.sampled_from(list(Codec)),
    kept=st.sets(st.integers(0, 19)),
    horizon_ms=st.none() | st.integers(0, 2**42).map(TimestampMs),
)
def test_records_that_stay_are_as_they_were(
    records: list[Record], codec: Codec, kept: set[int], horizon_ms: TimestampMs | None
) -> None:
    batch = encoded(records, codec)
    header = read_header(batch)
    selection = select(batch, 0, header, lambda offset, *_: offset - 1000 in kept)
    expected = [record for record in decode_batch(batch) if record.offset - 1000 in kept]
    assert len(selection.kept) == len(expected)
    if not expected:
        return
    written = encode_selection(selection, horizon_ms)
    found = read_header(written)
    verify_crc(written, found)
    assert decode_batch(written) == expected
    assert delete_horizon_ms(found) == horizon_ms
    assert found.max_timestamp == max(record.timestamp for record in expected)
    same = ("base_offset", "last_offset_delta", "leader_epoch", "producer_id", "producer_epoch")
    for name in (*same, "base_sequence", "last_sequence", "codec"):
        assert getattr(found, name) == getattr(header, name)


def test_delete_horizon_is_kept_when_more_records_are_removed() -> None:
    pairs = [(b"a", None), (b"b", None), (b"c", b"x")]
    records = [Record(Offset(0), TimestampMs(100 + i), *pair) for i, pair in enumerate(pairs)]
    batch = encoded(records)
    once = encode_selection(select(batch, 0, read_header(batch), lambda *_: True), TimestampMs(999))
    selection = select(once, 0, read_header(once), lambda _, key, __: key != b"a")
    twice = encode_selection(selection, None)
    assert delete_horizon_ms(read_header(twice)) == 999
    assert [(r.offset, r.timestamp, r.key) for r in decode_batch(twice)] == [
        (1001, 101, b"b"),
        (1002, 102, b"c"),
    ]


def test_append_time_of_the_batch_is_kept_whatever_is_removed() -> None:
    batch = encoded([Record(Offset(0), TimestampMs(100 + i), b"k%d" % i, None) for i in range(3)])
    stamp_append_time(batch, 0, TimestampMs(5000))
    selection = select(batch, 0, read_header(batch), lambda offset, *_: offset == 1000)
    written = encode_selection(selection, TimestampMs(9000))
    assert [record.timestamp for record in decode_batch(written)] == [5000]
    assert delete_horizon_ms(read_header(written)) == 9000


@pytest.mark.parametrize("codec", list(Codec))
def test_batch_without_records_keeps_its_producer(codec: Codec) -> None:
    header = read_header(encoded([Record(Offset(0), TimestampMs(5), b"k", b"v")] * 3, codec))
    written = empty_batch(header)
    found = read_header(written)
    verify_crc(written, found)
    assert (found.record_count, decode_batch(written)) == (0, [])
    assert (found.base_offset, found.next_offset, found.last_sequence) == (1000, 1003, 42)
    assert (found.producer_id, found.producer_epoch, found.max_timestamp) == (7, 2, 5)


@pytest.mark.parametrize("cut", [1, 5, 20])
def test_bytes_that_are_not_records_are_rejected(cut: int) -> None:
    batch = encoded([Record(Offset(0), TimestampMs(5), b"key", b"value" * 10)])
    header = read_header(batch)._replace(size_bytes=len(batch) - cut)
    with pytest.raises(InvalidRecord):
        select(batch, 0, header, lambda *_: True)
