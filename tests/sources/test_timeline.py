from __future__ import annotations

from pathlib import Path

import pytest

from kafkaesque.sources.local.feed import Feed, open_timeline
from kafkaesque.sources.local.rules.timeline import Timeline
from kafkaesque.sources.rules import generator
from kafkaesque.sources.rules.generator import entries

EPOCH_US = 1_790_000_000_000_000


@pytest.mark.parametrize("rate", [5, 50, 700, 100_000])
def test_every_entry_has_a_unique_time_and_is_found_by_it(rate: float) -> None:
    timeline = Timeline(7, EPOCH_US, rate)
    last = 0
    for tick in range(400):
        for entry in entries(7, tick):
            at = timeline.time_us(entry)
            assert at > last
            assert timeline.tick_of(at) == tick
            last = at


def test_timeline_publishes_at_its_rate_and_ends_after_its_count() -> None:
    timeline = Timeline(7, EPOCH_US, rate=100, count=2000)
    assert timeline.ticks_at(-1) == 0
    assert 900 <= timeline.ticks_at(10) <= 1160
    assert timeline.ticks_at(1000) == 2000
    due_s = generator.offset_us(7, 300) / 1e6 / 2
    assert (timeline.ticks_at(due_s - 1e-4), timeline.ticks_at(due_s + 1e-4)) == (300, 301)


def test_event_time_is_clock_time_at_ordinary_rates() -> None:
    timeline = Timeline(7, EPOCH_US, rate=200)
    entry = entries(7, 1000)[0]
    elapsed_s = (timeline.time_us(entry) - EPOCH_US) / 1e6
    assert timeline.ticks_at(elapsed_s - 1e-3) == 1000
    assert timeline.ticks_at(elapsed_s + 1e-3) == 1001


def test_cursor_before_the_beginning_is_the_beginning() -> None:
    assert Timeline(7, EPOCH_US).tick_of(1) == 0


def test_stored_timeline_continues_and_a_different_one_starts(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "timeline.json"
    first, started_s = open_timeline(path, None, 50, None, now_s=1000.0)
    assert started_s == 1000.0
    again, started_s = open_timeline(path, None, 50, None, now_s=2000.0)
    assert (again, started_s) == (first, 1000.0)
    other, started_s = open_timeline(path, first.seed + 1, 50, None, now_s=3000.0)
    assert (other.seed, started_s) == (first.seed + 1, 3000.0)


def test_damaged_timeline_file_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "timeline.json"
    path.write_bytes(b"{torn")
    timeline, _ = open_timeline(path, 9, 50, None, now_s=5.0)
    assert timeline == Timeline(9, 5_000_000, 50, None)


def test_feed_starts_with_its_first_client() -> None:
    now = [100.0]
    feed = Feed(Timeline(7, EPOCH_US, rate=50), wall_s=lambda: now[0])
    assert feed.head() == 0
    now[0] = 200.0
    assert feed.join() == 0
    now[0] = 202.0
    assert 60 <= feed.join() <= 250
    assert feed.tick_at(199.0) == 0
