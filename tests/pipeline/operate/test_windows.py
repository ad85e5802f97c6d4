"""Backfill and replay of windows: complete windows are replaced, open ones are left to the live query."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.pipeline.operate.stage import MINUTE_MS, NOON_MS, deletion, ids, post, table

from kafkaesque.pipeline.errors import InvalidOption


def windows(bench: Any) -> set[tuple[int, str, int]]:
    """(minute of the window's start after noon, hashtag, posts)"""
    return {
        (int(row["window_start"].timestamp() * 1000 - NOON_MS) // MINUTE_MS, row["hashtag"],
         row["posts"])
        for row in table(bench, "trends").collect()
    }  # fmt: skip


def an_hour_of_posts() -> list[dict[str, Any]]:
    return [post(minute, minute=minute, tag="a" if minute % 2 else "b") for minute in range(60)]


@pytest.mark.parametrize("way", ["backfill", "replay"])
def test_swap_of_a_range_leaves_every_window_once(bench, produce, way: str) -> None:
    from kafkaesque.pipeline.operate import backfill as work

    produce(bench.topic, an_hour_of_posts())
    bench.run("trends")
    before = windows(bench)
    assert before
    wanted = work.LogRange(start_ms=NOON_MS + 10 * MINUTE_MS, end_ms=NOON_MS + 30 * MINUTE_MS)
    query = bench.query("trends")
    if way == "backfill":
        side = work.backfill(query, bench.context, wanted)
    else:
        side = work.replay(query, bench.context, wanted, rows_max=7)
    swapped = work.swap(side, bench.context)
    assert swapped["trends"] > 0
    assert windows(bench) == before
    assert table(bench, "trends").count() == len(before)


@pytest.mark.parametrize("way", ["backfill", "replay"])
def test_swap_of_everything_leaves_windows_that_the_live_query_will_still_emit(
    bench,
    produce,
    way: str,
) -> None:
    from kafkaesque.pipeline.operate import backfill as work

    produce(bench.topic, an_hour_of_posts())
    bench.run("trends")
    # The live query has not read these records; a run over the whole log has.
    produce(bench.topic, [post(100 + n, minute=60 + n, tag="c") for n in range(20)])
    query = bench.query("trends")
    if way == "backfill":
        side = work.backfill(query, bench.context, work.LogRange())
    else:
        side = work.replay(query, bench.context, work.LogRange(), rows_max=50)
    work.swap(side, bench.context)
    bench.run("trends")
    found = table(bench, "trends")
    assert found.count() == found.select("window_start", "hashtag").distinct().count()
    assert {start for start, _, _ in windows(bench)} == set(range(-9, 68))


def test_range_of_offsets_selects_the_windows_of_its_time(bench, produce) -> None:
    """Post n is at minute n, in partition n % 2: offsets 5 to 15 are minutes 10 to 29."""
    from kafkaesque.pipeline.operate import backfill as work

    produce(bench.topic, an_hour_of_posts())
    query = bench.query("trends")
    offsets = [{(bench.topic, index): offset for index in range(2)} for offset in (5, 15)]
    side = work.backfill(
        query, bench.context, work.LogRange(start_offsets=offsets[0], end_offsets=offsets[1])
    )
    assert side.resolved.wanted == work.LogRange(
        NOON_MS + 10 * MINUTE_MS, NOON_MS + 29 * MINUTE_MS + 1
    )
    work.swap(side, bench.context)
    assert {start for start, _, _ in windows(bench)} == set(range(10, 20))
    assert {count for _, _, count in windows(bench)} == {5}


def test_range_of_offsets_without_a_record_suggests_a_range_of_time(bench, produce) -> None:
    from kafkaesque.pipeline.operate.backfill import LogRange, backfill

    produce(bench.topic, [post(1)])
    offsets = {(bench.topic, 0): 0, (bench.topic, 1): 0}
    with pytest.raises(InvalidOption, match="by --from and --to"):
        backfill(bench.query("trends"), bench.context, LogRange(end_offsets=offsets))


def test_late_post_is_counted_and_does_not_change_its_window(bench, produce) -> None:
    from kafkaesque.pipeline.operate.progress import Metrics
    from kafkaesque.pipeline.operate.streaming import QuerySupervisor, Trigger

    produce(bench.topic, an_hour_of_posts())
    bench.run("trends")
    before = windows(bench)
    produce(bench.topic, [post(100, minute=1, tag="late")])
    metrics = Metrics()
    QuerySupervisor(bench.context, Trigger(once=True, restarts_max=5), metrics).run(
        [bench.query("trends")]
    )
    late = metrics.registry.get_sample_value(
        "kafkaesque_pipeline_late_rows_total", {"query": "trends"}
    )
    assert late == 10, "the post is late for each of the ten windows that it belongs to"
    assert windows(bench) >= before
    assert "late" not in {hashtag for _, hashtag, _ in windows(bench)}
    feed = bench.context.data.feed("trends").read_text().splitlines()
    assert sum(json.loads(line)["late_rows"] for line in feed) == 10


def test_backfilled_posts_exclude_earlier_repeats_and_later_deletions(bench, produce) -> None:
    from kafkaesque.pipeline.operate.backfill import LogRange, backfill, swap

    early = [post(number, minute=0) for number in range(4)]
    inside = [post(number, minute=10) for number in (2, 4, 6, 8)]
    produce(bench.topic, [*early, *inside])
    produce(bench.topic, [{**deletion(6), "timestamp": NOON_MS + 20 * MINUTE_MS}])
    bench.run("posts")
    assert ids(table(bench, "posts")) == ["p0", "p1", "p2", "p3", "p4", "p8"]
    wanted = LogRange(start_ms=NOON_MS + 5 * MINUTE_MS, end_ms=NOON_MS + 15 * MINUTE_MS)
    side = backfill(bench.query("posts"), bench.context, wanted)
    assert side.rows()["posts"] == 2
    swap(side, bench.context)
    assert ids(table(bench, "posts")) == ["p0", "p1", "p2", "p3", "p4", "p8"]
