"""Both decoders against `records.codec`, which decodes one record at a time."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkaesque.model.ids import Offset, ProducerEpoch, ProducerId, TimestampMs
from kafkaesque.pipeline.kafka.decoding import (
    AbortedTransactions,
    RecordsDamaged,
    decode,
    load_decoder,
    scan,
)
from kafkaesque.records.batch import Codec, reseal, stamp_append_time
from kafkaesque.records.codec import Record, encode_batch

pa = pytest.importorskip(
    "pyarrow", reason="pyarrow is missing: make setup, or pip install kafkaesque-platform[spark]"
)

from kafkaesque.pipeline.kafka.columns import record_batch  # noqa: E402

DECODERS = [
    pytest.param(
        True,
        id="compiled",
        marks=pytest.mark.skipif(
            load_decoder()[0] != "compiled",
            reason="the C decoder is not built: apt install gcc python3-dev, then make clean setup",
        ),
    ),
    pytest.param(False, id="plain"),
]
both = pytest.mark.parametrize("compiled", DECODERS)


def rows_of(data: bytes, compiled: bool, start: int = 0, end: int = 2**62, **aborted) -> list[dict]:
    view = memoryview(bytearray(data))
    found = scan(view, start, end, AbortedTransactions(aborted.get("aborted", [])))
    decoder = load_decoder(compiled=compiled)[1]
    columns = decode(decoder, view, found.bodies, (start, end), True)
    batch = record_batch(columns, "t", 3, 0)
    batch.validate(full=True)
    return batch.to_pylist()


def record(
    offset: int,
    value: bytes | None = b"v",
    key: bytes | None = None,
    headers=(),
    time_ms: int = 1000,
) -> Record:
    return Record(Offset(offset), TimestampMs(time_ms), key, value, tuple(headers))


def batch(records: list[Record], base: int = 0, **facts) -> bytes:
    return bytes(encode_batch(records, base_offset=Offset(base), keep_offsets=True, **facts))


byte_strings = st.none() | st.binary(max_size=40) | st.binary(min_size=100, max_size=300)
records_strategy = st.lists(
    st.tuples(
        byte_strings,
        byte_strings,
        st.lists(st.tuples(st.text(max_size=5), byte_strings), max_size=3),
        st.integers(0, 2**41),
        st.integers(1, 3),
    ),
    min_size=1,
    max_size=20,
)


@both
@settings(deadline=None, max_examples=60)
@given(st.lists(records_strategy, min_size=1, max_size=3), st.sampled_from(list(Codec)), st.data())
def test_decoded_records_equal_the_encoded_ones(compiled, groups, codec, data) -> None:
    offset, encoded, expected = 0, b"", []
    for group in groups:
        records, base = [], offset
        for key, value, headers, time_ms, step in group:
            records.append(record(offset, value, key, headers, time_ms))
            offset += step
        encoded += batch(records, base, codec=codec)
        expected += records
    start = data.draw(st.integers(0, offset))
    end = data.draw(st.integers(start, offset))
    expected = [item for item in expected if start <= item.offset < end]
    rows = rows_of(encoded, compiled, start, end)
    assert [row["offset"] for row in rows] == [item.offset for item in expected]
    assert [row["key"] for row in rows] == [item.key for item in expected]
    assert [row["value"] for row in rows] == [item.value for item in expected]
    assert [int(row["timestamp"].timestamp() * 1000 + 0.5) for row in rows] == [
        item.timestamp for item in expected
    ]
    assert [[tuple(h.values()) for h in row["headers"] or ()] for row in rows] == [
        list(item.headers) for item in expected
    ]


@both
def test_batch_cut_by_the_fetch_limit_is_left_for_the_next_fetch(compiled: bool) -> None:
    whole = batch([record(0), record(1)])
    data = whole + batch([record(2)], 2)[:-1]
    assert [row["offset"] for row in rows_of(data, compiled)] == [0, 1]
    assert scan(memoryview(data), 0, 100, AbortedTransactions([])).next_offset == 2


@both
def test_batch_with_a_wrong_checksum_is_rejected(compiled: bool) -> None:
    data = bytearray(batch([record(0)]))
    data[-1] ^= 1
    with pytest.raises(RecordsDamaged, match="checksum"):
        rows_of(bytes(data), compiled)


@both
@settings(deadline=None, max_examples=150)
@given(position=st.integers(61, 140), byte=st.integers(0, 255))
def test_malformed_records_with_a_valid_checksum_are_rejected_or_read(
    compiled, position, byte
) -> None:
    data = bytearray(batch([record(0, b"x" * 20, b"key", [("h", b"1")]), record(1, None)]))
    data[min(position, len(data) - 1)] = byte
    reseal(data, 0, len(data))
    with contextlib.suppress(RecordsDamaged):
        rows_of(bytes(data), compiled)


@both
def test_append_time_applies_to_every_record(compiled: bool) -> None:
    data = bytearray(batch([record(0, time_ms=5), record(1, time_ms=9)]))
    stamp_append_time(data, 0, TimestampMs(7_000))
    assert {row["timestamp"].timestamp() for row in rows_of(bytes(data), compiled)} == {7.0}


def transactional(base: int, producer: int, count: int = 1) -> bytes:
    return batch(
        [record(base + i) for i in range(count)],
        base,
        producer_id=ProducerId(producer),
        producer_epoch=ProducerEpoch(0),
        base_sequence=0,
        is_transactional=True,
    )


def marker(base: int, producer: int, commit: bool) -> bytes:
    key = b"\0\0\0" + bytes([1 if commit else 0])
    return batch(
        [record(base, b"\0\0\0\0\0\0", key)],
        base,
        producer_id=ProducerId(producer),
        producer_epoch=ProducerEpoch(0),
        is_transactional=True,
        is_control=True,
    )


@both
def test_aborted_transactions_and_markers_are_not_seen(compiled: bool) -> None:
    data = (
        transactional(0, 1)
        + transactional(1, 2)
        + marker(2, 1, commit=False)
        + marker(3, 2, commit=True)
        + transactional(4, 1)
        + marker(5, 1, commit=True)
        + batch([record(6)], 6)
    )
    rows = rows_of(data, compiled, aborted=[(1, 0)])
    assert [row["offset"] for row in rows] == [1, 4, 6]


def test_chunk_that_ends_in_a_marker_moves_the_position_past_it() -> None:
    data = transactional(0, 1) + marker(1, 1, commit=False)
    found = scan(memoryview(data), 0, 2, AbortedTransactions([(1, 0)]))
    assert (found.bodies, found.next_offset) == ([], 2)


def test_constant_columns_are_as_long_as_their_batch_when_serialized() -> None:
    sizes = []
    for count, topic, partition in ((1, "t", 0), (100, "t", 0), (65, "u", 7), (100, "t", 0)):
        view = memoryview(bytearray(batch([record(number) for number in range(count)])))
        found = scan(view, 0, 2**62, AbortedTransactions([]))
        columns = decode(load_decoder()[1], view, found.bodies, (0, 2**62), False)
        rows = record_batch(columns, topic, partition, 1)
        rows.validate(full=True)
        assert rows.column("topic").to_pylist() == [topic] * count
        assert rows.column("partition").to_pylist() == [partition] * count
        assert rows.column("timestampType").to_pylist() == [1] * count
        sizes.append(rows.serialize().size)
    assert sizes[0] < sizes[2] < sizes[1] == sizes[3]
