"""The checksum."""

from __future__ import annotations

import google_crc32c
import pytest

from kafkaesque.records.crc32c import crc32c


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
