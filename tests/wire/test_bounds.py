"""Varints and tagged fields: the helpers of generated readers."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkaesque.model.errors import ProtocolError
from kafkaesque.model.limits import TAGGED_FIELDS_MAX
from kafkaesque.wire.bounds import UVARINTS, read_uuid, read_uvarint, skip_tags, uvarint


@settings(deadline=None, max_examples=200)
@given(st.integers(0, 2**32 - 1))
def test_varint_comes_back_with_the_position_after_it(value: int) -> None:
    data = uvarint(value)

    assert read_uvarint(memoryview(b"\xff" + data + b"\xff"), 1) == (value, 1 + len(data))


@pytest.mark.parametrize("bits", range(0, 33, 7))
def test_varint_edges_at_each_length(bits: int) -> None:
    for value in {max(0, 2**bits - 1), 2**bits}:
        assert read_uvarint(memoryview(uvarint(value)), 0)[0] == value


def test_one_byte_varints_are_ready_made() -> None:
    assert [uvarint(value) for value in range(128)] == list(UVARINTS)


@pytest.mark.parametrize(
    "data", [b"\xff\xff\xff\xff\x10", b"\x80\x80\x80\x80\x80\x00", b"\xff" * 10]
)
def test_varint_beyond_32_bits_or_five_bytes_is_rejected(data: bytes) -> None:
    with pytest.raises(ProtocolError, match="varint"):
        read_uvarint(memoryview(data), 0)


@pytest.mark.parametrize("data", [b"", b"\x80", b"\x80\x80", b"\x80\x80\x80", b"\x80\x80\x80\x80"])
def test_varint_cut_short_is_an_index_error_for_the_codec_to_translate(data: bytes) -> None:
    with pytest.raises(IndexError):
        read_uvarint(memoryview(data), 0)


def test_unknown_tags_are_stepped_over_and_charged() -> None:
    section = b"\x02" + b"\x05\x03abc" + b"\x09\x00"
    data = memoryview(section + b"rest")

    assert skip_tags(data, 0, len(data), 100) == (len(section), 98)


def test_too_many_tags_in_one_struct_are_rejected() -> None:
    data = memoryview(uvarint(TAGGED_FIELDS_MAX + 1) + b"\0\0" * 100)

    with pytest.raises(ProtocolError, match="tagged fields"):
        skip_tags(data, 0, len(data), 10**6)


def test_tags_beyond_the_budget_of_the_message_are_rejected() -> None:
    data = memoryview(b"\x03" + b"\0\0" * 3)

    with pytest.raises(ProtocolError, match="elements"):
        skip_tags(data, 0, len(data), 2)


def test_tag_larger_than_the_data_is_rejected() -> None:
    data = memoryview(b"\x01\x00\x05abcd")

    with pytest.raises(ProtocolError, match="exceeds"):
        skip_tags(data, 0, len(data), 10)


def test_uuid_is_read_by_network_order() -> None:
    assert str(read_uuid(bytes(range(16)))) == "00010203-0405-0607-0809-0a0b0c0d0e0f"
