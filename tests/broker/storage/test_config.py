"""LogConfig validates its values."""

from __future__ import annotations

import pytest

from kafkaesque.broker.storage.config import LogConfig
from kafkaesque.model.errors import InvalidConfig


@pytest.mark.parametrize(
    ("name", "bad", "good"),
    [
        ("segment_bytes", [0, -1, 2**31], [1, 2**31 - 1]),
        ("segment_ms", [0, -1], [1]),
        ("index_interval_bytes", [-1], [0]),
        ("segment_index_bytes", [0, 19], [20]),
        ("retention_ms", [-2], [-1, 0]),
        ("retention_bytes", [-2], [-1, 0]),
    ],
)
def test_settings_out_of_range_are_rejected_by_name(
    name: str, bad: list[int], good: list[int]
) -> None:
    for value in bad:
        with pytest.raises(InvalidConfig, match=f"{name}={value}"):
            LogConfig(**{name: value})
    for value in good:
        assert getattr(LogConfig(**{name: value}), name) == value
