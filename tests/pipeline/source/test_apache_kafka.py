"""Reads and the archive query against Apache Kafka: transactions, compaction, both engines."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from kafkaesque.testing.apache_kafka import ApacheKafka
from kafkaesque.testing.maven import JavaUnavailable

pytestmark = [pytest.mark.slow_spark, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def kafka() -> Iterator[ApacheKafka]:
    settings = {
        "transaction.state.log.min.isr": "1",
        "transaction.state.log.replication.factor": "1",
        "log.cleaner.min.cleanable.ratio": "0.01",
        "log.cleaner.backoff.ms": "100",
    }
    server = ApacheKafka(settings=settings, heap="512m")
    try:
        server.start()
    except JavaUnavailable as error:
        pytest.skip(f"Apache Kafka cannot be started: {error}")
    yield server
    server.stop()


def create(kafka: ApacheKafka, name: str, **config: str) -> None:
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    admin.create_topics([NewTopic(name, 1, config=config)])[name].result()


def transactional(kafka: ApacheKafka, name: str) -> Producer:
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": name})
    producer.init_transactions(30)
    return producer


def options(kafka: ApacheKafka, topic: str, **more: str) -> dict[str, str]:
    return {
        "kafka.bootstrap.servers": kafka.bootstrap_servers,
        "subscribe": topic,
        "startingOffsets": "earliest",
        **more,
    }


def test_both_engines_see_the_same_transactions(spark, kafka, connector) -> None:
    from kafkaesque.pipeline.source.reading import read_batch

    create(kafka, "tx")
    first, second = transactional(kafka, "one"), transactional(kafka, "two")
    for turn in range(4):
        for producer in (first, second):
            producer.begin_transaction()
            for number in range(5):
                producer.produce("tx", f"{turn} {number}".encode())
            producer.flush(30)
        first.commit_transaction(30)
        if turn % 2:
            second.abort_transaction(30)
        else:
            second.commit_transaction(30)
    first.begin_transaction()
    first.produce("tx", b"open")
    first.flush(30)
    for isolation, count in (("read_committed", 30), ("read_uncommitted", 41)):
        wanted = options(kafka, "tx", **{"kafka.isolation.level": isolation})
        ours = read_batch(spark, wanted, engine="python").orderBy("offset").collect()
        assert len(ours) == count
        assert ours == read_batch(spark, wanted, engine="jvm").orderBy("offset").collect()
    first.abort_transaction(30)


def test_reads_continue_over_gaps_of_compaction(spark, kafka, tmp_path: Path) -> None:
    from kafkaesque.pipeline.source.reading import read_batch

    create(
        kafka,
        "compacted",
        **{"cleanup.policy": "compact", "segment.bytes": "1048576", "segment.ms": "200"},
    )
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    gone: set[int] = set()
    for turn in range(40):
        for key in range(5):
            producer.produce("compacted", b"%d" % turn, key=b"%d" % key)
        producer.flush(30)
        rows = read_batch(spark, options(kafka, "compacted")).select("offset").collect()
        found = {row["offset"] for row in rows}
        gone = set(range(max(found) + 1)) - found
        if gone:
            break
    assert gone, "the cleaner never ran"
    assert max(found) == 5 * (turn + 1) - 1


def test_archive_of_apache_kafka_is_complete(spark, kafka, tmp_path: Path) -> None:
    from kafkaesque.pipeline.operate.context import PipelineContext, PipelineSettings
    from kafkaesque.pipeline.operate.progress import Metrics
    from kafkaesque.pipeline.operate.queries import find_query
    from kafkaesque.pipeline.operate.streaming import QuerySupervisor, Trigger
    from kafkaesque.pipeline.paths import PipelineDirectory
    from kafkaesque.pipeline.sinks.delta_table import read_table

    create(kafka, "plain")
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    for number in range(500):
        producer.produce("plain", b"%d" % number)
    assert producer.flush(30) == 0
    context = PipelineContext(
        spark,
        PipelineDirectory(tmp_path),
        {"bootstrap.servers": kafka.bootstrap_servers},
        "python",
        PipelineSettings(archive_pattern="plain"),
    )
    trigger = Trigger(once=True, rows_max=200, restarts_max=5)
    results = QuerySupervisor(context, trigger, Metrics()).run([find_query("archive")])
    assert [result.failure for result in results] == [None]
    rows = read_table(spark, context.table("archive")).select("offset").collect()
    assert sorted(row["offset"] for row in rows) == list(range(500))
