"""Values that contain their own identity."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from kafkaesque.lab.faults.checks.payload import decode_value, encode_value, key_of

KEYS = st.integers(0, 50)
VALUES = st.integers(0, 10**7)
SIZES = st.integers(1, 400)


@settings(deadline=None, max_examples=100)
@given(KEYS, VALUES, SIZES)
def test_value_is_decoded(key: int, value: int, size_bytes: int) -> None:
    data = encode_value(key, value, size_bytes)
    assert decode_value(key, data) == value
    assert key_of(data) == key
    assert len(data) >= size_bytes


@settings(deadline=None, max_examples=200)
@given(KEYS, VALUES, SIZES, st.data())
def test_any_flipped_bit_is_detected(
    key: int, value: int, size_bytes: int, data: st.DataObject
) -> None:
    sent = bytearray(encode_value(key, value, size_bytes))
    bit = data.draw(st.integers(0, len(sent) * 8 - 1))
    sent[bit // 8] ^= 1 << bit % 8
    assert isinstance(decode_value(key, bytes(sent)), str)


def test_value_of_another_key_is_detected() -> None:
    assert isinstance(decode_value(4, encode_value(3, 17, 100)), str)


def test_truncated_and_absent_values_are_detected() -> None:
    data = encode_value(3, 17, 100)
    assert isinstance(decode_value(3, data[:-1]), str)
    assert isinstance(decode_value(3, data + b"x"), str)
    assert decode_value(3, b"") == "0 bytes b''"
    assert decode_value(3, None) == "no value"
    assert key_of(b"\x00\x01") is None
