"""Every transformation is tested on a few rows in a batch."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

MINUTE_MS = 60_000
NOON_MS = 1_790_000_000_000 // (60 * MINUTE_MS) * (60 * MINUTE_MS)
"""A full hour in 2026."""


def at(time_ms: int) -> datetime:
    return datetime.fromtimestamp(time_ms / 1000, tz=UTC).replace(tzinfo=None)


@pytest.fixture
def records(spark) -> Callable[..., Any]:
    """records([(value, timestamp ms), ...]) as a topic's rows; a dict becomes JSON."""

    def make(values: list[tuple[Any, int]]) -> Any:
        rows = [
            (
                None,
                json.dumps(value).encode() if isinstance(value, dict) else value,
                "t",
                0,
                offset,
                datetime.fromtimestamp(time_ms / 1000, tz=UTC),
                0,
            )
            for offset, (value, time_ms) in enumerate(values)
        ]
        schema = (
            "key binary, value binary, topic string, partition int, offset long, "
            "timestamp timestamp, timestampType int"
        )
        return spark.createDataFrame(rows, schema)

    return make
