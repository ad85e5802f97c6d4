"""Which windows a backfill or replay may replace."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip(
    "pyspark", reason="pyspark is missing: make setup, or pip install kafkaesque-platform[spark]"
)

from kafkaesque.pipeline.operate.context import Knobs
from kafkaesque.pipeline.operate.coverage import (
    READ_AFTER_MS,
    READ_BEFORE_MS,
    Coverage,
    Windows,
    cover,
    live_frontier_ms,
    read_range_ms,
)

SESSIONS = Windows(
    "started", "ended", "ended", lambda _: 10, tail_s=lambda _: 30, lead_s=lambda _: 30
)
TRENDS = Windows("window_start", "window_end", "window_start", lambda _: 10)
KNOBS = Knobs()


@pytest.mark.parametrize(
    ("wanted", "log_begins_ms", "frontiers_ms", "bounds"),
    [
        ((None, None), None, (None, None), (None, -0)),
        ((1000, 9000), None, (None, None), (1000, 9000)),
        ((1000, 9000), None, (7000, None), (1000, 7000)),
        ((1000, 9000), None, (8000, 5000), (1000, 5000)),
        ((1000, None), 4000, (8000, None), (4000, 8000)),
        ((None, None), 4000, (8000, 0), (4000, 0)),
    ],
)
def test_windows_are_replaced_behind_every_watermark_and_within_the_log(
    wanted, log_begins_ms, frontiers_ms, bounds
) -> None:
    found = cover(
        TRENDS, KNOBS, wanted=wanted, log_begins_ms=log_begins_ms, frontiers_ms=frontiers_ms
    )
    expected_end = None if bounds == (None, 0) else bounds[1]
    assert (found.start_ms, found.end_ms) == (bounds[0], expected_end)


def test_sessions_wait_for_their_gap_on_both_sides() -> None:
    found = cover(
        SESSIONS,
        KNOBS,
        wanted=(None, 100_000),
        log_begins_ms=5_000,
        frontiers_ms=(90_000, None),
    )
    assert (found.start_ms, found.end_ms) == (35_000, 60_000)


def test_range_that_holds_no_whole_window_is_empty() -> None:
    assert Coverage(TRENDS, 5, 5).is_empty
    assert not Coverage(TRENDS, None, 5).is_empty


def test_predicate_names_both_bounds_in_utc() -> None:
    kind = """'Timestamp(Microsecond, Some("UTC"))'"""
    assert Coverage(TRENDS, 0, 1_500).predicate() == (
        f"window_start >= arrow_cast('1970-01-01T00:00:00.000+00:00', {kind}) AND "
        f"window_end <= arrow_cast('1970-01-01T00:00:01.500+00:00', {kind})"
    )
    assert Coverage(TRENDS, None, None).predicate() is None


def test_records_around_the_range_are_read_as_well() -> None:
    assert read_range_ms(TRENDS, KNOBS, None, None) == (None, None)
    start_ms, end_ms = read_range_ms(SESSIONS, KNOBS, 1_000_000, 2_000_000)
    assert start_ms == 1_000_000 - READ_BEFORE_MS - 30_000
    assert end_ms == 2_000_000 + READ_AFTER_MS + 40_000


def checkpoint(path: Path, watermarks_ms: list[int], commits: int) -> Path:
    for name in ("offsets", "commits"):
        (path / name).mkdir(parents=True)
    for number, watermark in enumerate(watermarks_ms):
        text = f'v1\n{json.dumps({"batchWatermarkMs": watermark})}\n{{"t":{{"0":1}}}}'
        (path / "offsets" / str(number)).write_text(text)
    for number in range(commits):
        (path / "commits" / str(number)).write_text("v1\n{}")
    return path


def test_live_query_has_told_up_to_the_watermark_of_its_last_finished_batch(
    tmp_path: Path,
) -> None:
    assert live_frontier_ms(tmp_path / "never") is None
    assert live_frontier_ms(checkpoint(tmp_path / "begun", [0], 0)) == 0
    assert live_frontier_ms(checkpoint(tmp_path / "ran", [0, 40, 70], 2)) == 40
