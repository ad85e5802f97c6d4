from __future__ import annotations

import json

import pytest
from tests.pipeline.jobs.conftest import MINUTE_MS, NOON_MS, at

from kafkaesque.pipeline.jobs.trends import (
    TrendSettings,
    hashtag_windows,
    top_trends,
    trend_records,
)

SETTINGS = TrendSettings(window_s=180, slide_s=60, late_s=60, top=2)


def posts(spark, rows: list[tuple[str, int, list[str]]]):
    """(post id, minute after noon, hashtags)"""
    schema = (
        "network string, id string, author string, seen_at timestamp, "
        "is_edit boolean, tags array<string>"
    )
    return spark.createDataFrame(
        [
            ("n", post, f"by {post}", at(NOON_MS + minute * MINUTE_MS), False, tags)
            for post, minute, tags in rows
        ],
        schema,
    )


def test_hashtags_are_counted_in_every_window_that_holds_the_post(spark) -> None:
    rows = hashtag_windows(posts(spark, [("1", 0, ["a"]), ("2", 1, ["a", "b"])]), SETTINGS)
    found = {
        (row["hashtag"], int((row["window_start"] - at(NOON_MS)).total_seconds() // 60)): row[
            "posts"
        ]
        for row in rows.collect()
    }
    assert found == {
        ("a", -2): 1, ("a", -1): 2, ("a", 0): 2, ("a", 1): 1,
        ("b", -1): 1, ("b", 0): 1, ("b", 1): 1,
    }  # fmt: skip


def test_repeated_post_counts_once(spark) -> None:
    rows = hashtag_windows(posts(spark, [("1", 0, ["a"]), ("1", 0, ["a"])]), SETTINGS)
    assert {row["posts"] for row in rows.collect()} == {1}


def test_burst_is_high_where_the_last_slide_exceeds_the_rest(spark) -> None:
    steady = [(f"s{i}", i % 3, ["steady"]) for i in range(9)]
    sudden = [(f"b{i}", 2, ["sudden"]) for i in range(9)]
    rows = hashtag_windows(posts(spark, steady + sudden), SETTINGS)
    bursts = {
        row["hashtag"]: (row["recent"], row["burst"])
        for row in rows.where(f"window_start = timestamp_millis({NOON_MS})").collect()
    }
    assert bursts == {"steady": (3, 0.0), "sudden": (9, 9.0)}


def test_only_the_top_of_each_window_is_kept_with_its_rank(spark) -> None:
    rows = [("1", 0, ["a", "b"]), ("2", 0, ["a", "c"]), ("3", 0, ["a", "c"])]
    top = top_trends(hashtag_windows(posts(spark, rows), SETTINGS), SETTINGS)
    window = top.where(f"window_start = timestamp_millis({NOON_MS})").orderBy("rank")
    assert [(row["rank"], row["hashtag"], row["posts"]) for row in window.collect()] == [
        (1, "a", 3),
        (2, "c", 2),
    ]


def test_records_of_the_topic_are_keyed_by_window_and_hashtag(spark) -> None:
    windows = hashtag_windows(posts(spark, [("1", 0, ["a"])]), SETTINGS)
    row = trend_records(windows).orderBy("key").first()
    start = NOON_MS - 2 * MINUTE_MS
    assert bytes(row["key"]) == f"{start}/a".encode()
    value = json.loads(bytes(row["value"]))
    assert value["window_start_ms"] == start
    assert value["window_end_ms"] == NOON_MS + MINUTE_MS
    assert (value["hashtag"], value["posts"]) == ("a", 1)


def test_window_that_is_not_a_multiple_of_its_slide_is_rejected() -> None:
    with pytest.raises(ValueError, match="multiple"):
        TrendSettings(window_s=100, slide_s=60)
