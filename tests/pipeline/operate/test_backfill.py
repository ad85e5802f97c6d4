"""The rules of backfill and replay: which windows may be replaced, and how far a replay is."""

from __future__ import annotations

import pytest

pytest.importorskip(
    "pyspark", reason="pyspark is missing: make setup, or pip install kafkaesque-platform[spark]"
)

from kafkaesque.pipeline.operate.backfill import (
    READ_AFTER_MS,
    READ_BEFORE_MS,
    CompleteWindows,
    complete_windows,
    records_done,
    records_range_ms,
)
from kafkaesque.pipeline.operate.context import PipelineSettings
from kafkaesque.pipeline.operate.queries import WindowColumns

SESSIONS = WindowColumns(
    "started", "ended", "ended", lambda _: 10, tail_s=lambda _: 30, lead_s=lambda _: 30
)
TRENDS = WindowColumns("window_start", "window_end", "window_start", lambda _: 10)
SETTINGS = PipelineSettings()


@pytest.mark.parametrize(
    ("wanted", "log_start_ms", "watermarks_ms", "bounds"),
    [
        ((None, None), None, (None, None), (None, -0)),
        ((1000, 9000), None, (None, None), (1000, 9000)),
        ((1000, 9000), None, (7000, None), (1000, 7000)),
        ((1000, 9000), None, (8000, 5000), (1000, 5000)),
        ((1000, None), 4000, (8000, None), (4000, 8000)),
        ((None, None), 4000, (8000, 0), (4000, 0)),
    ],
)
def test_windows_are_complete_before_every_watermark_and_within_the_log(
    wanted, log_start_ms, watermarks_ms, bounds
) -> None:
    found = complete_windows(
        TRENDS, SETTINGS, wanted=wanted, log_start_ms=log_start_ms, watermarks_ms=watermarks_ms
    )
    expected_end = None if bounds == (None, 0) else bounds[1]
    assert (found.start_ms, found.end_ms) == (bounds[0], expected_end)


def test_sessions_need_their_gap_on_both_sides() -> None:
    found = complete_windows(
        SESSIONS,
        SETTINGS,
        wanted=(None, 100_000),
        log_start_ms=5_000,
        watermarks_ms=(90_000, None),
    )
    assert (found.start_ms, found.end_ms) == (35_000, 60_000)


def test_range_without_a_complete_window_is_empty() -> None:
    assert CompleteWindows(TRENDS, 5, 5).is_empty
    assert not CompleteWindows(TRENDS, None, 5).is_empty


def test_predicate_names_both_bounds_in_utc() -> None:
    kind = """'Timestamp(Microsecond, Some("UTC"))'"""
    assert CompleteWindows(TRENDS, 0, 1_500).predicate() == (
        f"window_start >= arrow_cast('1970-01-01T00:00:00.000+00:00', {kind}) AND "
        f"window_end <= arrow_cast('1970-01-01T00:00:01.500+00:00', {kind})"
    )
    assert CompleteWindows(TRENDS, None, None).predicate() is None


def test_records_around_the_range_are_read_too() -> None:
    assert records_range_ms(TRENDS, SETTINGS, None, None) == (None, None)
    start_ms, end_ms = records_range_ms(SESSIONS, SETTINGS, 1_000_000, 2_000_000)
    assert start_ms == 1_000_000 - READ_BEFORE_MS - 30_000
    assert end_ms == 2_000_000 + READ_AFTER_MS + 40_000


START = {("t", 0): 10, ("t", 1): 0}
END = {("t", 0): 20, ("t", 1): 5}


@pytest.mark.parametrize(
    ("reached", "done"),
    [({}, 0), ({"t": {"0": 10, "1": 0}}, 0), ({"t": {"0": 15, "1": 2}}, 7),
     ({"t": {"0": 99, "1": 5}, "u": {"0": 3}}, 15)],
)  # fmt: skip
def test_progress_counts_only_records_of_the_range(
    reached: dict[str, dict[str, int]], done: int
) -> None:
    progress = {"batchId": 1, "timestamp": "now", "sources": [{"endOffset": reached or None}]}
    assert records_done(progress, START, END) == done
