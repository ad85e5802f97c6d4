from __future__ import annotations

import pytest

from kafkaesque.model.sizes import human_bytes


@pytest.mark.parametrize(
    ("size_bytes", "expected"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (5 * 1024**3, "5.0 GiB"),
        (2**60, "1048576.0 TiB"),
    ],
)
def test_sizes_for_people(size_bytes: int, expected: str) -> None:
    assert human_bytes(size_bytes) == expected
