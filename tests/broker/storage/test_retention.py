"""Which segments retention may delete."""

from __future__ import annotations

import pytest

from kafkaesque.broker.storage.chain import choose_expired
from kafkaesque.broker.storage.config import LogConfig
from kafkaesque.broker.storage.rules.segment_facts import SegmentFacts

NOW = 10_000


def _segments(*facts: tuple[int, int]) -> list[SegmentFacts]:
    """(size, largest timestamp) of segments of ten offsets each."""
    return [
        SegmentFacts(10 * i, size_bytes, timestamp, timestamp)
        for i, (size_bytes, timestamp) in enumerate(facts)
    ]


@pytest.mark.parametrize(
    ("times", "retention_ms", "expected"),
    [
        ([1000, 2000, 3000], -1, 0),
        ([1000, 2000, 3000], 8000, 1),
        ([1000, 2000, 3000], 8999, 1),
        ([1000, 2000, 3000], 9000, 0),
        ([1000, 2000, 3000], 0, 3),
        ([1000, 9000, 3000], 2000, 1),
        ([NOW + 1, 1000, 1000], 100, 0),
        ([1000, NOW + 10**9, 1000], 100, 1),
    ],
    ids=["off", "one", "edge", "spared", "all", "young-first", "future-first", "future-second"],
)
def test_segments_expire_by_the_age_of_their_youngest_record(
    times: list[int], retention_ms: int, expected: int
) -> None:
    config = LogConfig(retention_ms=retention_ms)
    segments = _segments(*((100, time) for time in times))
    assert choose_expired(segments, 30, 30, NOW, config) == expected


@pytest.mark.parametrize(
    ("sizes", "retention_bytes", "expected"),
    [
        ([100, 100, 100], -1, 0),
        ([100, 100, 100], 300, 0),
        ([100, 100, 100], 299, 0),
        ([100, 100, 100], 200, 1),
        ([100, 100, 100], 101, 1),
        ([100, 100, 100], 100, 2),
        ([100, 100, 100], 1, 2),
        ([100, 100, 100], 0, 3),
        ([500, 100, 100], 600, 0),
    ],
)
def test_segments_expire_while_the_rest_is_large_enough(
    sizes: list[int], retention_bytes: int, expected: int
) -> None:
    config = LogConfig(retention_ms=-1, retention_bytes=retention_bytes)
    segments = _segments(*((size, NOW) for size in sizes))
    assert choose_expired(segments, 30, 30, NOW, config) == expected


def test_empty_active_segment_is_kept() -> None:
    segments = [*_segments((100, 1)), SegmentFacts(10)]
    assert choose_expired(segments, 10, 10, NOW, LogConfig(retention_ms=1)) == 1
    assert choose_expired(segments[1:], 10, 10, NOW, LogConfig(retention_ms=1)) == 0


def test_records_without_timestamp_are_as_old_as_their_segment() -> None:
    segments = [SegmentFacts(0, 100, 9_950, -1)]
    assert choose_expired(segments, 10, 10, NOW, LogConfig(retention_ms=100)) == 0
    assert choose_expired(segments, 10, 10, NOW + 100, LogConfig(retention_ms=100)) == 1


@pytest.mark.parametrize(
    ("committed", "expected"), [(0, 0), (9, 0), (10, 1), (19, 1), (20, 2), (29, 2), (30, 3)]
)
def test_uncommitted_records_are_kept(committed: int, expected: int) -> None:
    segments = _segments((100, 1), (100, 1), (100, 1))
    config = LogConfig(retention_ms=1)
    assert choose_expired(segments, 30, committed, NOW, config) == expected
