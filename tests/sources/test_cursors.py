from __future__ import annotations

import pytest

from kafkaesque.events.social import SourceCursor
from kafkaesque.model.ids import TimestampMs
from kafkaesque.sources.rules import cursors
from kafkaesque.sources.rules.cursors import Rewind, XPlan

NOW = TimestampMs(1_790_000_000_000)
MINUTE = 60_000


def test_jetstream_resumes_a_little_before_its_cursor() -> None:
    assert cursors.jetstream_cursor(10_000_000, 5000) == 5_000_000
    assert cursors.jetstream_cursor(1000, 5000) == 1
    assert cursors.jetstream_cursor(None, 5000) is None


def test_gap_beyond_jetstreams_retention_is_reported_as_lost() -> None:
    day_ms = 24 * 60 * MINUTE
    assert cursors.jetstream_lost_ms((NOW - day_ms) * 1000, NOW) == 0
    assert cursors.jetstream_lost_ms((NOW - 2 * day_ms) * 1000, NOW) == day_ms // 2


def test_mastodon_resumes_from_an_id_of_earlier_milliseconds() -> None:
    assert cursors.mastodon_min_id((1000 << 16) + 7, 400) == (600 << 16) + 7
    assert cursors.mastodon_min_id(5, 400) == 0


@pytest.mark.parametrize(
    ("gap_ms", "plan"),
    [
        (0, XPlan(backfill_minutes=1)),
        (90_000, XPlan(backfill_minutes=2)),
        (5 * MINUTE - 5000, XPlan(backfill_minutes=5)),
    ],
)
def test_x_fills_a_short_gap_by_backfill(gap_ms: int, plan: XPlan) -> None:
    assert cursors.plan_x(TimestampMs(NOW - gap_ms), NOW, 5000) == plan


def test_x_recovers_a_long_gap_and_reports_what_is_lost() -> None:
    hour = 60 * MINUTE
    plan = cursors.plan_x(TimestampMs(NOW - hour), NOW, 0)
    assert (plan.backfill_minutes, plan.lost_ms) == (5, 0)
    assert plan.recover == ("2026-09-21T13:13:20Z", "2026-09-21T14:12:20Z")
    plan = cursors.plan_x(TimestampMs(NOW - 30 * hour), NOW, 0)
    assert plan.lost_ms == 6 * hour


def test_x_without_progress_just_connects() -> None:
    assert cursors.plan_x(None, NOW, 5000) == XPlan()


def test_clock_that_went_back_requests_the_minimum() -> None:
    assert cursors.plan_x(TimestampMs(NOW + MINUTE), NOW, 5000) == XPlan(backfill_minutes=1)


def test_rewind_halves_while_connections_make_no_progress_and_recovers() -> None:
    rewind = Rewind(1000)
    assert [rewind.before(cursor) for cursor in (0, 7, 7, 7, 8, 8)] == [
        1000,
        1000,
        500,
        250,
        1000,
        500,
    ]


@pytest.mark.parametrize("text", ["", "x", "-4", "9" * 30])
def test_invalid_cursor_counts_as_none(text: str) -> None:
    kept = SourceCursor(network="x", source="s", stream="p", cursor=text, read_ms=NOW)
    assert cursors.cursor_position(kept) is None
    assert cursors.cursor_position(None) is None


def test_x_without_enterprise_access_searches_the_gap_and_reports_what_is_lost() -> None:
    assert cursors.plan_x_search(None, NOW, 5000) is None
    plan = cursors.plan_x_search(TimestampMs(NOW - 90_000), NOW, 5000)
    assert plan == cursors.XSearch("2026-09-21T14:11:45Z")
    day_ms = 24 * 60 * MINUTE
    plan = cursors.plan_x_search(TimestampMs(NOW - 9 * day_ms), NOW, 0)
    assert plan is not None
    assert plan.start_time == "2026-09-14T14:14:20Z"
    assert plan.lost_ms == 2 * day_ms + MINUTE
