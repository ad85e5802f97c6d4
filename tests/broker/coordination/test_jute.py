from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kazoo.protocol.serialization import write_buffer, write_string

from kafkaesque.broker.coordination.rules.jute import JuteReader, JuteWriter
from kafkaesque.model.errors import ProtocolError

INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)


@given(INT32, INT64, st.booleans(), st.none() | st.binary(), st.text(), st.lists(st.text()))
def test_round_trip(
    number: int, large: int, flag: bool, data: bytes | None, text: str, texts: list[str]
) -> None:
    writer = JuteWriter()
    writer.int32(number)
    writer.int64(large)
    writer.boolean(flag)
    writer.buffer(data)
    writer.string(text)
    writer.vector(texts, writer.string)
    reader = JuteReader(writer.getvalue())
    assert reader.int32() == number
    assert reader.int64() == large
    assert reader.boolean() is flag
    assert reader.buffer() == data
    assert reader.string() == text
    assert reader.vector(reader.string, 4) == texts
    assert reader.remaining_bytes == 0


@given(st.none() | st.binary(), st.text(min_size=1))  # kazoo writes "" as null
def test_bytes_are_those_of_kazoo(data: bytes | None, text: str) -> None:
    writer = JuteWriter()
    writer.buffer(data)
    writer.string(text)
    assert writer.getvalue() == write_buffer(data) + write_string(text)


@given(st.binary(max_size=64))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    for read in (
        lambda r: (r.int32(), r.int64()),
        lambda r: r.buffer(),
        lambda r: r.string(),
        lambda r: r.vector(r.string, 4),
    ):
        try:
            read(JuteReader(data))
        except ProtocolError:
            continue


@pytest.mark.parametrize("size", [-2, -(2**31), 5, 2**31 - 1])
def test_length_beyond_the_bytes_is_refused_before_anything_is_made(size: int) -> None:
    reader = JuteReader(struct.pack(">i", size) + b"1234")
    with pytest.raises(ProtocolError):
        reader.buffer()


@pytest.mark.parametrize("count", [-2, 2, 2**31 - 1])
def test_count_beyond_the_bytes_is_refused(count: int) -> None:
    reader = JuteReader(struct.pack(">ii", count, 0))
    read: list[str] = []
    with pytest.raises(ProtocolError):
        reader.vector(lambda: read.append(reader.string()), 4)
    assert read == []


def test_null_vector_is_empty_and_null_string_is_refused() -> None:
    assert JuteReader(struct.pack(">i", -1)).vector(lambda: 0, 1) == []
    with pytest.raises(ProtocolError):
        JuteReader(struct.pack(">i", -1)).string()
    assert JuteReader(struct.pack(">i", -1)).optional_string() is None
