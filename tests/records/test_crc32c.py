"""The checksum."""

from __future__ import annotations

from random import Random

import google_crc32c
import pytest

from kafkaesque.records.crc32c import crc32c
from kafkaesque.records.native import pure

compiled_only = pytest.mark.skipif(
    pure(crc32c) is crc32c,
    reason="nothing is compiled: unset KAFKAESQUE_PURE, or apt install gcc python3-dev and make clean setup",
)


def test_known_answer_of_rfc_3720_holds() -> None:
    assert crc32c(memoryview(b"123456789")) == 0xE3069283
    assert crc32c(memoryview(bytes(32))) == 0x8A9136AA


@pytest.mark.parametrize("size_bytes", [0, 1, 65535, 65536, 65537, 200_001])
def test_chunks_give_the_checksum_of_the_whole(size_bytes: int) -> None:
    data = bytes(i * 7 % 251 for i in range(size_bytes))
    assert crc32c(memoryview(bytearray(data))) == google_crc32c.value(data)


@pytest.mark.parametrize("end", [3, 1000, 65_540, 65_541, 200_001])
def test_part_of_a_buffer_has_the_checksum_of_that_part(end: int) -> None:
    data = bytes(i * 7 % 251 for i in range(200_001))
    assert crc32c(memoryview(data)[3:end]) == google_crc32c.value(data[3:end])


def assert_all_ways_agree(data: bytes, sizes: range, alignments: tuple[int, ...]) -> None:
    from kafkaesque.records import _native

    view = memoryview(data)
    for size_bytes in sizes:
        for start in alignments:
            part = view[start : start + size_bytes]
            found = {_native.checksum_by(way, part) for way in _native.CHECKSUM_WAYS}
            assert found == {google_crc32c.value(bytes(part))}, (size_bytes, start)


@compiled_only
def test_every_way_gives_the_same_for_every_small_size_and_odd_alignments() -> None:
    assert_all_ways_agree(Random(1).randbytes(4200), range(4097), (0, 1, 7, 31))


@compiled_only
def test_all_implementations_agree_for_any_number_of_steps_per_block() -> None:
    # 56 divides the steps of both widths of folding, and the largest blocks are shorter than 30,000.
    assert_all_ways_agree(Random(2).randbytes(61_000), range(0, 60_500, 56), (0, 5))


@compiled_only
def test_every_way_gives_the_same_for_large_buffers() -> None:
    random = Random(3)
    data = random.randbytes(3_000_000)
    for _ in range(20):
        size_bytes, start = random.randrange(2_900_000), random.randrange(64)
        assert_all_ways_agree(data, range(size_bytes, size_bytes + 1), (start,))


@compiled_only
def test_unknown_checksum_implementation_is_rejected() -> None:
    from kafkaesque.records import _native

    assert _native.CHECKSUM_WAYS[0] == _native.CHECKSUM_BY
    assert _native.CHECKSUM_WAYS[-1] == "tables"
    with pytest.raises(ValueError, match="abacus"):
        _native.checksum_by("abacus", b"")
