"""Reading one range without Spark: missing leaders, restarted brokers, deleted records."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions

pytest.importorskip(
    "pyarrow", reason="pyarrow is missing: make setup, or pip install kafkaesque-platform[spark]"
)

from kafkaesque.client.wire.errors import ConnectionLost
from kafkaesque.pipeline.errors import DataLoss, KafkaUnreachable
from kafkaesque.pipeline.kafka import cluster
from kafkaesque.pipeline.kafka.cluster import ClusterClient
from kafkaesque.pipeline.kafka.fetching import read_range
from kafkaesque.pipeline.kafka.read_settings import ReadSettings
from kafkaesque.pipeline.rules.offsets import OffsetRange
from kafkaesque.pipeline.source.options import read_cluster
from kafkaesque.testing import Broker


def settings(broker: Broker, **more: object) -> ReadSettings:
    properties = {"bootstrap.servers": broker.bootstrap_servers, "default.api.timeout.ms": "20000"}
    return ReadSettings(read_cluster(properties), **more)  # type: ignore[arg-type]


def offsets(batches) -> list[int]:
    return [offset for batch in batches for offset in batch.column("offset").to_pylist()]


def test_only_the_records_of_the_range_are_read(broker, topic, produce) -> None:
    produce(topic, [{"value": b"x" * 100, "partition": 0} for _ in range(500)])
    small = settings(broker, fetch_size_bytes=2000)
    assert offsets(read_range(OffsetRange(topic, 0, 123, 456), small)) == list(range(123, 456))


@pytest.mark.parametrize("compiled", [None, False])
def test_rows_outlive_their_response(broker, topic, produce, compiled) -> None:
    """A connection receives large responses into the same memory."""
    for number in range(4):
        produce(topic, [{"value": b"%d" % number * 90_000, "partition": 0}])
    small = settings(broker, fetch_size_bytes=1000, compiled=compiled)
    batches = list(read_range(OffsetRange(topic, 0, 0, 4), small))
    values = [value for batch in batches for value in batch.column("value").to_pylist()]
    assert [value[:1] + value[-1:] for value in values] == [b"00", b"11", b"22", b"33"]


def test_worker_with_cached_metadata_reads_a_new_partition(broker, topic, produce) -> None:
    produce(topic, [{"value": b"x", "partition": 0}])
    assert offsets(read_range(OffsetRange(topic, 0, 0, 1), settings(broker))) == [0]
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0})
    admin.create_partitions([NewPartitions(topic, 3)])[topic].result(30)
    produce(topic, [{"value": b"x", "partition": 2}])
    assert offsets(read_range(OffsetRange(topic, 2, 0, 1), settings(broker))) == [0]


def test_leaders_are_cached_for_a_while(tmp_path: Path, monkeypatch) -> None:
    with Broker(data=tmp_path) as broker:
        broker.create_topic("t", 1)
        client = ClusterClient(settings(broker).cluster)
        first = client.topology(["t"])
    client.close()
    assert client.recent_topology(["t"]) is first
    with pytest.raises(ConnectionLost):
        client.recent_topology(["t", "another"])
    monkeypatch.setattr(cluster, "TOPOLOGY_AGE_S_MAX", 0.0)
    with pytest.raises(ConnectionLost):
        client.recent_topology(["t"])


def test_abandoned_reader_leaves_the_next_one_a_clean_connection(broker, topic, produce) -> None:
    for _ in range(5):
        produce(topic, [{"value": b"x" * 1000, "partition": 0} for _ in range(20)])
    small = settings(broker, fetch_size_bytes=1000)
    for _ in range(3):
        reader = read_range(OffsetRange(topic, 0, 0, 100), small)
        next(reader)
        reader.close()
    assert offsets(read_range(OffsetRange(topic, 0, 0, 100), small)) == list(range(100))


def test_reading_continues_after_a_broker_restart(tmp_path: Path) -> None:
    from confluent_kafka import Producer

    with Broker(data=tmp_path, settings={"num.partitions": 1}) as broker:
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0})
        for _ in range(3):
            for _ in range(10):
                producer.produce("t", b"x" * 1000)
            producer.flush(10)
        producer.close()
        reader = read_range(OffsetRange("t", 0, 0, 30), settings(broker, fetch_size_bytes=1000))
        first = offsets([next(reader)])
        found: list[int] = []
        runner = threading.Thread(target=lambda: found.extend(offsets(reader)))
        broker.restart()
        runner.start()
        runner.join()
        assert first + found == list(range(30))


def test_range_beyond_the_end_waits_until_the_deadline(broker, topic, produce) -> None:
    produce(topic, [{"value": b"x", "partition": 0}])
    properties = {"bootstrap.servers": broker.bootstrap_servers, "default.api.timeout.ms": "100"}
    with pytest.raises(KafkaUnreachable, match="no record"):
        offsets(read_range(OffsetRange(topic, 0, 0, 5), ReadSettings(read_cluster(properties))))


def test_partition_that_is_gone_is_data_loss(broker, topic) -> None:
    with pytest.raises(DataLoss, match="is gone"):
        offsets(read_range(OffsetRange(topic, 7, 0, 5), settings(broker)))
    assert (
        offsets(read_range(OffsetRange(topic, 7, 0, 5), settings(broker, fail_on_data_loss=False)))
        == []
    )
