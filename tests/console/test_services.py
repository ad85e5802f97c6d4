"""Spark's status files, trends, the control file, and scraped metrics."""

from __future__ import annotations

import json
from pathlib import Path

from kafkaesque.console.rules.exposition import read_exposition
from kafkaesque.console.services.pipeline import (
    FEED_BYTES_READ_MAX,
    WINDOWS_KEPT,
    TrendBoard,
    read_queries,
)
from kafkaesque.console.services.process_control import read_control_file
from kafkaesque.console.services.scraper import MetricsPage, broker_values, kind_of


def trend(window: int, tag: str, posts: int) -> dict[str, object]:
    return {"window_start_ms": window, "window_end_ms": window + 600_000, "hashtag": tag,
            "posts": posts, "recent": 1, "authors": 1, "burst": 0.5}  # fmt: skip


def test_trends_show_the_recent_window_with_most_posts() -> None:
    board = TrendBoard()
    board.add(trend(0, "raft", 1))
    board.add(trend(0, "raft", 9))
    board.add(trend(0, "kafka", 5))
    board.add(trend(60_000, "kafka", 1))
    newest = board.newest(10)
    assert newest["window_start_ms"] == 0
    assert [(row["hashtag"], row["posts"]) for row in newest["tags"]] == [("raft", 9), ("kafka", 5)]
    assert board.over_time(["kafka"])["kafka"] == [(600.0, 5.0), (660.0, 1.0)]


def test_trends_are_bounded_and_malformed_values_ignored() -> None:
    board = TrendBoard()
    for value in (None, 3, {}, {"window_start_ms": "x", "hashtag": "a"}, {"window_start_ms": 1}):
        board.add(value)
    assert board.newest(3)["tags"] == []
    for window in range(1000):
        board.add(trend(window, "a", 1))
    assert len(board.over_time(["a"])["a"]) == WINDOWS_KEPT


def test_queries_are_read_with_their_last_batches(tmp_path: Path) -> None:
    home = tmp_path / "queries" / "posts"
    home.mkdir(parents=True)
    (home / "status.json").write_text(json.dumps({"query": "posts", "state": "running"}))
    lines = [json.dumps({"batch": n, "duration_ms": n, "pad": "x" * 200}) for n in range(2000)]
    (home / "progress.jsonl").write_text("\n".join(lines) + "\nnot json\n")
    assert (home / "progress.jsonl").stat().st_size > FEED_BYTES_READ_MAX
    (broken := tmp_path / "queries" / "broken").mkdir()
    (broken / "status.json").write_text("{")
    (query,) = read_queries(tmp_path)
    assert query["query"] == "posts"
    assert query["batches"][-1]["batch"] == 1999
    assert read_queries(None) == []


def test_a_control_file_may_be_missing_or_invalid(tmp_path: Path) -> None:
    path = tmp_path / "control.json"
    assert read_control_file(path) is None
    path.write_text("{}")
    assert read_control_file(path) is None
    path.write_text(json.dumps({"url": "http://127.0.0.1:1/", "token": "t"}))
    control = read_control_file(path)
    assert control is not None
    assert control.url == "http://127.0.0.1:1"


def test_kinds_of_metrics_pages_and_their_rates() -> None:
    before = read_exposition(
        'kafkaesque_raft_groups 3\nkafkaesque_request_bytes_total{api="produce"} 100\n'
        'kafkaesque_request_seconds_bucket{api="produce",le="0.001"} 0\n'
        'kafkaesque_request_seconds_bucket{api="produce",le="+Inf"} 0\n'
    )
    after = read_exposition(
        'kafkaesque_raft_groups 3\nkafkaesque_request_bytes_total{api="produce"} 300\n'
        'kafkaesque_request_seconds_bucket{api="produce",le="0.001"} 10\n'
        'kafkaesque_request_seconds_bucket{api="produce",le="+Inf"} 10\n'
    )
    assert kind_of(after) == "broker"
    assert kind_of(read_exposition("kafkaesque_gateway_connections 1\n")) == "gateway"
    page = MetricsPage("http://x/metrics", "broker", 12.0, after, 10.0, before)
    values = broker_values([page])
    assert values["bytes_in"] == 100.0
    assert 0.9 < values["produce_p99_ms"] <= 1.0
    restarted = MetricsPage("http://x/metrics", "broker", 12.0, before, 10.0, after)
    assert restarted.rate("kafkaesque_request_bytes_total") == 0.0
