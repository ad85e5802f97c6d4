from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkaesque.pipeline.errors import InvalidOption
from kafkaesque.pipeline.rules.offsets import (
    OffsetRange,
    from_json,
    from_spark,
    limit_end,
    split,
    to_json,
    to_spark,
)


def test_offsets_have_the_format_of_sparks_own_connector() -> None:
    offsets = {("b", 1): 2, ("a", 10): 7, ("a", 2): 5}
    assert to_spark(offsets) == {"a": {"2": 5, "10": 7}, "b": {"1": 2}}
    assert to_json(offsets) == '{"a":{"2":5,"10":7},"b":{"1":2}}'
    assert from_spark(to_spark(offsets)) == offsets


def test_invalid_offset_json_is_rejected_with_an_example() -> None:
    with pytest.raises(InvalidOption, match="not JSON like"):
        from_json("[1, 2]", "startingOffsets")


def test_limit_is_shared_in_proportion_to_the_backlog() -> None:
    start, latest = {("t", 0): 0, ("t", 1): 0}, {("t", 0): 900, ("t", 1): 100}
    assert limit_end(start, latest, 100) == {("t", 0): 90, ("t", 1): 10}


def test_partition_with_a_small_backlog_is_not_starved() -> None:
    start, latest = {("t", 0): 0, ("t", 1): 5}, {("t", 0): 1_000_000, ("t", 1): 6}
    assert limit_end(start, latest, 10)[("t", 1)] == 6


def test_everything_is_taken_when_the_limit_allows_it() -> None:
    assert limit_end({("t", 0): 3}, {("t", 0): 10}, 7) == {("t", 0): 10}


@settings(deadline=None, max_examples=100)
@given(
    st.lists(st.tuples(st.integers(0, 1000), st.integers(0, 1000)), min_size=1, max_size=6),
    st.integers(1, 500),
)
def test_limited_batches_reach_the_end_without_going_back(sizes, rows_max) -> None:
    start = {("t", i): begin for i, (begin, _) in enumerate(sizes)}
    latest = {("t", i): begin + size for i, (begin, size) in enumerate(sizes)}
    position = start
    while position != latest:
        end = limit_end(position, latest, rows_max)
        assert all(position[p] <= end[p] <= latest[p] for p in latest)
        assert end != position
        assert sum(end[p] - position[p] for p in latest) <= rows_max + len(sizes)
        position = end


@settings(deadline=None, max_examples=100)
@given(st.lists(st.integers(0, 200), min_size=1, max_size=5), st.none() | st.integers(1, 12))
def test_split_ranges_cover_the_same_offsets_once(sizes, tasks_min) -> None:
    ranges = [OffsetRange("t", index, 10, 10 + size) for index, size in enumerate(sizes)]
    covered = [
        (item.partition, offset)
        for item in split(ranges, tasks_min)
        for offset in range(item.start, item.end)
    ]
    assert sorted(covered) == [
        (item.partition, offset) for item in ranges for offset in range(item.start, item.end)
    ]
    assert len(covered) == len(set(covered))


def test_large_range_is_split_for_more_tasks() -> None:
    cut = split([OffsetRange("t", 0, 0, 90), OffsetRange("t", 1, 0, 10)], 10)
    assert len(cut) == 10
    assert sum(item.partition == 0 for item in cut) == 9
