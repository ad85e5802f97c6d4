from __future__ import annotations

from kafkaesque.admin.record_reader import RecordRange, make_ranges
from kafkaesque.admin.rules.offset_reset import Bounds, OffsetSpec

BOUNDS = {("t", 0): Bounds(0, 10), ("t", 1): Bounds(4, 4)}


def test_ranges_end_at_the_current_end_and_skip_empty_partitions() -> None:
    ranges = make_ranges(BOUNDS, OffsetSpec("beginning"), BOUNDS, OffsetSpec("end"))
    assert ranges == [RecordRange("t", 0, 0, 10)]


def test_following_has_no_stop_and_keeps_empty_partitions() -> None:
    ranges = make_ranges(BOUNDS, OffsetSpec("last", 3), BOUNDS, None)
    assert ranges == [RecordRange("t", 0, 7, None), RecordRange("t", 1, 4, None)]


def test_a_stop_at_or_before_the_start_reads_nothing() -> None:
    assert make_ranges(BOUNDS, OffsetSpec("offset", 6), BOUNDS, OffsetSpec("offset", 6)) == []
