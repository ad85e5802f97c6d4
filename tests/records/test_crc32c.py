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
