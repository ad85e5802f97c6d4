from __future__ import annotations

import pytest

from kafkaesque.model.errors import CorruptMessage, InvariantBroken
from kafkaesque.records.log_fields import Reader, compact_string, string, varint


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (0, b"\0"),
        (127, b"\x7f"),
        (128, b"\x80\1"),
        (300, b"\xac\2"),
        (2**32 - 1, b"\xff\xff\xff\xff\x0f"),
    ],
)
def test_varint_is_written_and_read_in_groups_of_seven_bits(value: int, written: bytes) -> None:
    assert varint(value) == written
    assert Reader(written).varint() == value


def test_varint_without_end_is_corrupt() -> None:
    with pytest.raises(CorruptMessage):
        Reader(b"\xff" * 6).varint()


def test_array_that_cannot_follow_is_rejected_before_it_is_made() -> None:
    with pytest.raises(CorruptMessage, match="2147483647"):
        Reader(b"\x7f\xff\xff\xff" + b"x" * 100).count(element_bytes_min=15)


def test_null_where_a_string_is_due_is_corrupt() -> None:
    with pytest.raises(CorruptMessage, match="null"):
        Reader(b"\xff\xff").string()


def test_string_that_is_not_utf8_is_corrupt() -> None:
    with pytest.raises(CorruptMessage, match="UTF-8"):
        Reader(b"\0\1\xff").string()


def test_string_too_long_for_the_log_is_our_own_mistake() -> None:
    with pytest.raises(InvariantBroken):
        string("x" * 32_768)


def test_compact_string_has_its_length_plus_one() -> None:
    assert compact_string("é") == b"\3\xc3\xa9"
