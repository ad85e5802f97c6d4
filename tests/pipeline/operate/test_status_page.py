"""The status pages of a running pipeline that the console reads, without Spark."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip(
    "pyspark", reason="pyspark is missing: make setup, or pip install kafkaesque-platform[spark]"
)

from kafkaesque.pipeline.operate.progress import BatchSummary, Metrics
from kafkaesque.pipeline.operate.status import append_feed, write_status
from kafkaesque.pipeline.operate.status_page import QueryPages
from kafkaesque.pipeline.paths import PipelineDirectory
from kafkaesque.service.status_page import in_thread

SUMMARY = BatchSummary("posts", 3, "now", 10, 5.0, 200, 7, 2, 0, None, {"t": {"0": 4}})


@pytest.fixture
def data(tmp_path: Path) -> PipelineDirectory:
    return PipelineDirectory(tmp_path)


@pytest.fixture
def base(data: PipelineDirectory) -> Iterator[str]:
    metrics = Metrics()
    metrics.observe(SUMMARY)
    pages = QueryPages(data, ["posts", "trends"], metrics).pages()
    with in_thread(pages, "127.0.0.1", 0) as address:
        yield f"http://{address}"


def get(url: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(url) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def test_status_and_batches_are_those_of_the_files(base: str, data: PipelineDirectory) -> None:
    for number in range(3):
        append_feed(data.feed("posts"), {**SUMMARY.as_json(), "batch": number})
    write_status(data.status("posts"), {"state": "running", **SUMMARY.as_json()})
    queries = json.loads(get(f"{base}/status")[1])["queries"]
    assert [(item["query"], item["state"]) for item in queries] == [
        ("posts", "running"),
        ("trends", "starting"),
    ]
    assert (queries[0]["lag_records"], queries[0]["late_rows"]) == (7, 2)
    feed = json.loads(get(f"{base}/progress/posts")[1])
    assert [item["batch"] for item in feed["batches"]] == [0, 1, 2]
    assert json.loads(get(f"{base}/progress/trends")[1])["batches"] == []


def test_ready_means_that_every_query_runs(base: str, data: PipelineDirectory) -> None:
    assert get(f"{base}/healthz") == (200, "ok\n")
    assert get(f"{base}/readyz") == (503, "not running: posts, trends\n")
    for name in ("posts", "trends"):
        write_status(data.status(name), {"state": "running"})
    assert get(f"{base}/readyz") == (200, "ready\n")
    write_status(data.status("trends"), {"state": "failed"})
    assert get(f"{base}/readyz") == (503, "not running: trends\n")


def test_metrics_are_labelled_by_query(base: str) -> None:
    text = get(f"{base}/metrics")[1]
    assert 'kafkaesque_pipeline_lag_records{query="posts"} 7.0' in text
    assert 'kafkaesque_pipeline_late_rows_total{query="posts"} 2.0' in text


def test_unknown_page_lists_the_pages(base: str) -> None:
    code, text = get(f"{base}/progress/../status.json")
    assert code == 404
    assert "/progress/posts, /progress/trends" in text
