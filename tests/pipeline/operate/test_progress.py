from __future__ import annotations

import gc
import json
from pathlib import Path

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions
from confluent_kafka.admin import AdminClient

pytest.importorskip(
    "pyspark", reason="pyspark is missing: make setup, or pip install kafkaesque-platform[spark]"
)

from kafkaesque.client.wire.address import Address
from kafkaesque.pipeline.kafka.cluster import ClusterSettings
from kafkaesque.pipeline.operate import progress
from kafkaesque.pipeline.operate.control import read_status, statuses
from kafkaesque.pipeline.operate.progress import Metrics, ProgressBook, summarize
from kafkaesque.pipeline.places import Places
from kafkaesque.testing import Broker


def document(batch: int = 3, **more) -> dict:
    return {
        "batchId": batch,
        "timestamp": "2026-11-16T00:00:00.000Z",
        "numInputRows": 10,
        "processedRowsPerSecond": 5.5,
        "durationMs": {"triggerExecution": 1800},
        "eventTime": {"watermark": "2026-11-15T23:58:00.000Z"},
        "stateOperators": [{"numRowsDroppedByWatermark": 2, "numRowsTotal": 7}],
        "sources": [
            {
                "endOffset": {"t": {"0": 5, "1": 6}},
                "latestOffset": '{"t":{"0":8,"1":6,"2":1}}',
            }
        ],
        **more,
    }


def test_progress_of_spark_becomes_figures() -> None:
    found = summarize("q", document())
    assert (found.batch, found.input_rows, found.duration_ms) == (3, 10, 1800)
    assert (found.lag_records, found.late_rows, found.state_rows) == (4, 2, 7)
    assert found.end_offsets == {"t": {"0": 5, "1": 6}}


def test_progress_without_sources_has_no_lag() -> None:
    assert summarize("q", document(sources=[{"endOffset": None}])).lag_records == 0


@pytest.fixture
def book(tmp_path: Path) -> ProgressBook:
    """Of a Kafka that nobody can reach: what the book tells must not depend on it."""
    cluster = ClusterSettings((Address("127.0.0.1", 1),), request_timeout_s=0.1)
    return ProgressBook(Places(tmp_path), cluster, Metrics())


def test_batch_is_told_once_although_spark_and_the_end_tell_it(
    book: ProgressBook, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "_COMMIT_DEADLINE_S", 0.0)
    places = Places(tmp_path)
    book.announce("q")
    assert statuses(places)[0]["state"] == "running"
    book.record(summarize("q", document()))
    book.end("q", json.dumps(document()), "the disk is full")
    assert len(places.feed("q").read_text().splitlines()) == 1
    status = read_status(places.status("q"))
    assert (status["state"], status["failure"], status["batch"]) == (
        "failed",
        "the disk is full",
        3,
    )


def test_place_is_committed_until_the_book_is_closed_and_no_connection_is_left(
    tmp_path: Path,
) -> None:
    with Broker() as broker:
        host, _, port = broker.bootstrap_servers.partition(":")
        cluster = ClusterSettings((Address(host, int(port)),))
        book = ProgressBook(Places(tmp_path), cluster, Metrics())
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        broker.create_topic("t", partitions=2)
        for name in ("one", "two"):
            book.announce(name)
            book.record(summarize(name, document()))
        book.close()
        book.record(summarize("one", document(4)))
        del book
        gc.collect()  # A socket that nobody closed is told of here.
        [asked] = admin.list_consumer_group_offsets(
            [ConsumerGroupTopicPartitions("pipeline.one")]
        ).values()
        places = asked.result().topic_partitions
        assert {(place.partition, place.offset) for place in places} == {(0, 5), (1, 6)}
        assert {place.metadata for place in places} == {"batch 3"}


def test_query_whose_process_is_gone_is_shown_as_killed(tmp_path: Path) -> None:
    places = Places(tmp_path)
    path = places.status("q")
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps({"query": "q", "state": "running", "pid": 2**22 + 1}))
    assert statuses(places)[0]["state"] == "killed"


def test_feed_that_has_grown_large_is_begun_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "FEED_SIZE_BYTES_MAX", 10)
    feed = tmp_path / "progress.jsonl"
    for number in range(3):
        progress.append_feed(feed, {"number": number})
    assert [json.loads(line) for line in feed.read_text().splitlines()] == [{"number": 2}]
