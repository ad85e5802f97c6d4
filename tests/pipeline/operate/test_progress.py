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

from kafkaesque.model.address import Address
from kafkaesque.pipeline.kafka.cluster import ClusterSettings
from kafkaesque.pipeline.operate import progress, status
from kafkaesque.pipeline.operate.progress import Metrics, ProgressListener, summarize
from kafkaesque.pipeline.operate.status import read_status, statuses
from kafkaesque.pipeline.paths import PipelineDirectory
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


def test_sparks_progress_document_is_summarized() -> None:
    found = summarize("q", document())
    assert (found.batch, found.input_rows, found.duration_ms) == (3, 10, 1800)
    assert (found.lag_records, found.late_rows, found.state_rows) == (4, 2, 7)
    assert found.end_offsets == {"t": {"0": 5, "1": 6}}


def test_progress_without_sources_has_no_lag() -> None:
    assert summarize("q", document(sources=[{"endOffset": None}])).lag_records == 0


@pytest.fixture
def listener(tmp_path: Path) -> ProgressListener:
    """A listener for an unreachable Kafka: status and feed must not depend on it."""
    cluster = ClusterSettings((Address("127.0.0.1", 1),), request_timeout_s=0.1)
    return ProgressListener(PipelineDirectory(tmp_path), cluster, Metrics())


def test_batch_that_spark_and_the_end_report_is_recorded_once(
    listener: ProgressListener, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "_COMMIT_DEADLINE_S", 0.0)
    data = PipelineDirectory(tmp_path)
    listener.announce("q")
    assert statuses(data)[0]["state"] == "running"
    listener.record(summarize("q", document()))
    listener.end("q", json.dumps(document()), "the disk is full")
    assert len(data.feed("q").read_text().splitlines()) == 1
    last = read_status(data.status("q"))
    assert (last["state"], last["failure"], last["batch"]) == (
        "failed",
        "the disk is full",
        3,
    )


def test_offsets_are_committed_until_the_listener_is_closed_and_no_connection_leaks(
    tmp_path: Path,
) -> None:
    with Broker() as broker:
        host, _, port = broker.bootstrap_servers.partition(":")
        cluster = ClusterSettings((Address(host, int(port)),))
        listener = ProgressListener(PipelineDirectory(tmp_path), cluster, Metrics())
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        broker.create_topic("t", partitions=2)
        for name in ("one", "two"):
            listener.announce(name)
            listener.record(summarize(name, document()))
        listener.close()
        listener.record(summarize("one", document(4)))
        del listener
        gc.collect()  # Warns about sockets that were not closed.
        [future] = admin.list_consumer_group_offsets(
            [ConsumerGroupTopicPartitions("pipeline.one")]
        ).values()
        committed = future.result().topic_partitions
        assert {(item.partition, item.offset) for item in committed} == {(0, 5), (1, 6)}
        assert {item.metadata for item in committed} == {"batch 3"}


def test_query_whose_process_is_gone_is_shown_as_killed(tmp_path: Path) -> None:
    data = PipelineDirectory(tmp_path)
    path = data.status("q")
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps({"query": "q", "state": "running", "pid": 2**22 + 1}))
    assert statuses(data)[0]["state"] == "killed"


def test_feed_beyond_its_size_limit_is_rotated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(status, "FEED_SIZE_BYTES_MAX", 10)
    feed = tmp_path / "progress.jsonl"
    for number in range(3):
        status.append_feed(feed, {"number": number})
    assert [json.loads(line) for line in feed.read_text().splitlines()] == [{"number": 2}]
