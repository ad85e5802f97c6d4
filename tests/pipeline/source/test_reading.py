"""Both engines against the in-process broker: rows, offsets, checkpoints and failures."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest
from confluent_kafka.admin import AdminClient, NewPartitions

from kafkaesque.pipeline.errors import InvalidOption
from kafkaesque.pipeline.source.reading import read_batch, read_stream, register_source

engines = pytest.mark.parametrize("engine", ["python", "jvm"], indirect=True)


@pytest.fixture
def engine(request: pytest.FixtureRequest) -> str:
    if request.param == "jvm":
        request.getfixturevalue("connector")
    return request.param


def drain(frame, checkpoint: Path, table: Path) -> list[int]:
    """Runs a stream to the end of the log; returns the rows of each batch."""
    query = (
        frame.writeStream.format("parquet")
        .option("path", str(table))
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return [progress["numInputRows"] for progress in query.recentProgress]


def positions(spark, table: Path) -> list[tuple[int, int]]:
    rows = spark.read.parquet(str(table)).select("partition", "offset").collect()
    return sorted((row["partition"], row["offset"]) for row in rows)


def varied(count: int) -> list[dict]:
    return [
        {
            "value": None if i % 7 == 3 else b"v%d" % i,
            "key": None if i % 5 == 0 else b"k%d" % i,
            "partition": i % 2,
            "timestamp": 1_700_000_000_000 + i,
            "headers": [("a", b"1"), ("a", None), ("b", "é".encode())] if i % 4 == 0 else None,
        }
        for i in range(count)
    ]


@pytest.mark.usefixtures("connector")
def test_both_engines_give_the_same_rows(spark, topic, produce, options) -> None:
    produce(topic, varied(60))
    wanted = options(topic, includeHeaders="true")
    ours = read_batch(spark, wanted, engine="python")
    official = read_batch(spark, wanted, engine="jvm")
    assert ours.schema == official.schema
    order = ["partition", "offset"]
    assert ours.orderBy(*order).collect() == official.orderBy(*order).collect()
    assert ours.count() == 60


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_compressed_topics_are_read(spark, topic, broker, options, codec) -> None:
    from confluent_kafka import Producer

    producer = Producer(
        {"bootstrap.servers": broker.bootstrap_servers, "compression.type": codec, "linger.ms": 20}
    )
    for i in range(200):
        producer.produce(topic, b"value %d" % i)
    assert producer.flush(20) == 0
    producer.close()
    rows = read_batch(spark, options(topic)).select("value").collect()
    assert sorted(bytes(row["value"]) for row in rows) == sorted(
        b"value %d" % i for i in range(200)
    )


def test_plain_decoder_reads_what_the_compiled_one_reads(spark, topic, produce, options) -> None:
    produce(topic, varied(40))
    wanted = options(topic, includeHeaders="true")
    plain = read_batch(spark, {**wanted, "kafkaesque.decoder": "plain"})
    assert plain.exceptAll(read_batch(spark, wanted)).count() == 0
    assert plain.count() == 40


@pytest.mark.usefixtures("connector")
def test_checkpoint_of_one_engine_is_resumed_by_the_other(
    spark, topic, produce, options, tmp_path
) -> None:
    """Both engines write offsets in the same format."""
    checkpoint, table = tmp_path / "checkpoint", tmp_path / "table"
    for turn, engine in enumerate(("python", "jvm", "python")):
        produce(topic, [{"value": b"x", "partition": i % 2} for i in range(30)])
        frame = read_stream(spark, options(topic), checkpoint=checkpoint, engine=engine)
        drain(frame, checkpoint, table)
        assert positions(spark, table) == [(p, o) for p in range(2) for o in range(15 * (turn + 1))]


@engines
def test_batches_are_limited_and_available_now_ends_there(
    spark, topic, produce, options, tmp_path, engine
) -> None:
    produce(topic, [{"value": b"x", "partition": 0} for _ in range(100)])
    frame = read_stream(
        spark,
        options(topic, maxOffsetsPerTrigger="30"),
        checkpoint=tmp_path / "c",
        engine=engine,
    )
    assert drain(frame, tmp_path / "c", tmp_path / "t") == [30, 30, 30, 10]
    assert len(positions(spark, tmp_path / "t")) == 100


@engines
def test_crash_before_the_first_commit_with_latest_loses_nothing(
    spark, topic, produce, options, tmp_path, engine
) -> None:
    """Spark does not keep `initialOffset`, and latest moves on."""
    checkpoint = tmp_path / "c"
    produce(topic, [{"value": b"before", "partition": 0}])
    wanted = options(topic, startingOffsets="latest")
    read_stream(spark, wanted, checkpoint=checkpoint, engine=engine)
    produce(topic, [{"value": b"after", "partition": 0} for _ in range(5)])

    def explode(_rows, _batch) -> None:
        raise RuntimeError("killed in batch 0")

    frame = read_stream(spark, wanted, checkpoint=checkpoint, engine=engine)
    query = (
        frame.writeStream.foreachBatch(explode)
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    with pytest.raises(Exception, match="killed in batch 0"):
        query.awaitTermination()
    produce(topic, [{"value": b"later", "partition": 0}])
    frame = read_stream(spark, wanted, checkpoint=checkpoint, engine=engine)
    drain(frame, checkpoint, tmp_path / "t")
    assert positions(spark, tmp_path / "t") == [(0, offset) for offset in range(1, 7)]


@engines
def test_partitions_added_between_runs_are_read_from_their_beginning(
    spark, topic, produce, options, tmp_path, broker, engine
) -> None:
    produce(topic, [{"value": b"x", "partition": 0}])
    frame = read_stream(spark, options(topic), checkpoint=tmp_path / "c", engine=engine)
    drain(frame, tmp_path / "c", tmp_path / "t")
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    admin.create_partitions([NewPartitions(topic, 3)])[topic].result()
    produce(topic, [{"value": b"y", "partition": 2} for _ in range(3)])
    frame = read_stream(spark, options(topic), checkpoint=tmp_path / "c", engine=engine)
    drain(frame, tmp_path / "c", tmp_path / "t")
    assert positions(spark, tmp_path / "t") == [(0, 0), (2, 0), (2, 1), (2, 2)]


@engines
def test_partitions_added_while_a_query_runs_are_read_from_their_beginning(
    spark, topic, produce, options, tmp_path, broker, engine
) -> None:
    produce(topic, [{"value": b"x", "partition": 0}])
    frame = read_stream(spark, options(topic), checkpoint=tmp_path / "c", engine=engine)
    seen: set[tuple[int, int]] = set()

    def collect(rows, _number: int) -> None:
        seen.update((row["partition"], row["offset"]) for row in rows.collect())

    query = (
        frame.select("partition", "offset")
        .writeStream.foreachBatch(collect)
        .option("checkpointLocation", str(tmp_path / "c"))
        .start()
    )
    try:
        await_rows(query, seen, 1)
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        admin.create_partitions([NewPartitions(topic, 3)])[topic].result()
        produce(topic, [{"value": b"y", "partition": index} for index in (2, 0, 2)])
        await_rows(query, seen, 4)
    finally:
        query.stop()
    assert seen == {(0, 0), (0, 1), (2, 0), (2, 1)}


def await_rows(query, seen: set, count: int) -> None:
    """Waits for rows; raises the error of a failed query. The test's own timeout ends it."""
    while len(seen) < count:
        # Returns at once, or raises, where the query has ended.
        assert not query.awaitTermination(1), "the query has ended"


def recreate(broker, topic: str) -> None:
    broker.delete_topics([topic])
    broker.create_topic(topic, 2)


def test_recreated_topic_fails_the_query_unless_loss_is_accepted(
    spark, topic, produce, options, tmp_path, broker
) -> None:
    produce(topic, [{"value": b"old", "partition": 0} for _ in range(10)])
    frame = read_stream(spark, options(topic), checkpoint=tmp_path / "c")
    drain(frame, tmp_path / "c", tmp_path / "t")
    recreate(broker, topic)
    produce(topic, [{"value": b"new", "partition": 0} for _ in range(4)])
    frame = read_stream(spark, options(topic), checkpoint=tmp_path / "c")
    with pytest.raises(Exception, match="was recreated"):
        drain(frame, tmp_path / "c", tmp_path / "t")
    frame = read_stream(spark, options(topic, failOnDataLoss="false"), checkpoint=tmp_path / "c")
    drain(frame, tmp_path / "c", tmp_path / "t")
    rows = spark.read.parquet(str(tmp_path / "t")).where("value = cast('new' as binary)").collect()
    assert sorted(row["offset"] for row in rows) == [0, 1, 2, 3]


def test_records_deleted_before_they_were_read_fail_the_query_unless_loss_is_accepted(
    spark, topic, produce, options, broker
) -> None:
    from confluent_kafka import TopicPartition

    produce(topic, [{"value": b"x", "partition": 0} for _ in range(10)])
    start = json.dumps({topic: {"0": 2, "1": 0}})
    wanted = options(topic, startingOffsets=start)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    deleted = admin.delete_records([TopicPartition(topic, 0, 6)])
    for future in deleted.values():
        future.result()
    with pytest.raises(Exception, match="is not in the log, which starts at 6"):
        read_batch(spark, wanted).collect()
    rows = read_batch(spark, {**wanted, "failOnDataLoss": "false"}).collect()
    assert sorted(row["offset"] for row in rows) == [6, 7, 8, 9]


def test_pattern_reads_matching_topics_and_no_others(
    spark, topic, produce, options, broker
) -> None:
    broker.create_topic(f"{topic}.a", 1)
    broker.create_topic(f"{topic}.b", 1)
    produce(topic, [b"not"])
    produce(f"{topic}.a", [b"1"])
    produce(f"{topic}.b", [b"2"])
    wanted = options(topic)
    del wanted["subscribe"]
    rows = read_batch(spark, {**wanted, "subscribePattern": rf"{topic}\.."}).collect()
    assert sorted(row["topic"] for row in rows) == [f"{topic}.a", f"{topic}.b"]


@engines
def test_range_of_time_is_read(spark, topic, produce, options, engine) -> None:
    rows = [{"value": b"x", "partition": 0, "timestamp": 1000 * i} for i in range(1, 11)]
    produce(topic, rows)
    wanted = options(topic, startingTimestamp="3000", endingTimestamp="7000")
    del wanted["startingOffsets"]
    wanted["startingOffsetsByTimestampStrategy"] = "latest"
    found = read_batch(spark, wanted, engine=engine).collect()
    assert sorted(row["offset"] for row in found) == [2, 3, 4, 5]


def test_range_is_split_into_more_tasks_than_partitions(spark, topic, produce, options) -> None:
    produce(topic, [{"value": b"x", "partition": 0} for _ in range(100)])
    frame = read_batch(spark, options(topic, minPartitions="4"))
    assert frame.rdd.getNumPartitions() == 4
    assert frame.select("offset").distinct().count() == 100


def test_empty_topic_gives_no_rows_and_a_stream_that_ends(spark, topic, options, tmp_path) -> None:
    assert read_batch(spark, options(topic)).count() == 0
    frame = read_stream(spark, options(topic), checkpoint=tmp_path / "c")
    assert drain(frame, tmp_path / "c", tmp_path / "t") in ([], [0])


def test_record_larger_than_the_fetch_limit_is_read(spark, topic, produce, options) -> None:
    big = b"x" * 300_000
    produce(topic, [{"value": big, "partition": 0}, {"value": b"small", "partition": 0}])
    wanted = options(topic, **{"kafka.max.partition.fetch.bytes": "1000"})
    sizes = [len(row["value"]) for row in read_batch(spark, wanted).collect()]
    assert sorted(sizes) == [5, 300_000]


@engines
def test_missing_topic_is_named_before_anything_starts(
    spark, broker, options, tmp_path, engine
) -> None:
    with pytest.raises(InvalidOption, match="there is no topic nowhere"):
        read_batch(spark, options("nowhere"), engine=engine)
    with pytest.raises(InvalidOption, match="there is no topic nowhere"):
        read_stream(spark, options("nowhere"), checkpoint=tmp_path / "c", engine=engine)
    assert not (tmp_path / "c").exists()


def test_unreachable_broker_is_named_within_its_deadline(spark, tmp_path) -> None:
    wanted = {
        "kafka.bootstrap.servers": "127.0.0.1:1",
        "subscribe": "t",
        "kafka.default.api.timeout.ms": "200",
    }
    from kafkaesque.pipeline.errors import KafkaUnreachable

    with pytest.raises(KafkaUnreachable, match=r"127\.0\.0\.1:1"):
        read_batch(spark, wanted)


def test_compacted_gaps_do_not_stop_a_reader_early(spark, topic, options) -> None:
    """The end of a range is a position, not a count of rows."""
    from kafkaesque.model.ids import Offset, TimestampMs
    from kafkaesque.pipeline.kafka.decoding import AbortedTransactions, scan
    from kafkaesque.records.codec import Record, encode_batch

    records = [Record(Offset(o), TimestampMs(1), b"k", b"v") for o in (0, 50, 99)]
    chunk = memoryview(encode_batch(records, keep_offsets=True))
    assert scan(chunk, 0, 100, AbortedTransactions([])).next_offset == 100


@engines
def test_available_now_ends_while_producers_continue(
    spark, topic, produce, options, tmp_path, engine
) -> None:
    produce(topic, [{"value": b"x", "partition": 0} for _ in range(10)])
    seen: list[int] = []

    def write(rows, _batch: int) -> None:
        produce(topic, [{"value": b"y", "partition": 0} for _ in range(10)])
        seen.append(rows.count())

    wanted = options(topic, maxOffsetsPerTrigger="4")
    frame = read_stream(spark, wanted, checkpoint=tmp_path / "c", engine=engine)
    query = (
        frame.writeStream.foreachBatch(write)
        .option("checkpointLocation", str(tmp_path / "c"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    assert seen == [4, 4, 2]


@pytest.mark.usefixtures("connector")
def test_both_engines_see_the_same_transactions_of_our_broker(
    spark, topic, broker, options
) -> None:
    """Markers and aborted records leave gaps; a reader must pass them to reach the end."""
    from confluent_kafka import Producer

    producer = Producer(
        {"bootstrap.servers": broker.bootstrap_servers, "transactional.id": topic, "log_level": 0}
    )
    producer.init_transactions(30)
    for turn in range(4):
        producer.begin_transaction()
        for number in range(5):
            producer.produce(topic, f"{turn} {number}".encode(), partition=0)
        producer.flush(30)
        if turn % 2:
            producer.abort_transaction(30)
        else:
            producer.commit_transaction(30)
    producer.close()
    for isolation, count in (("read_committed", 10), ("read_uncommitted", 20)):
        wanted = options(topic, **{"kafka.isolation.level": isolation})
        ours = read_batch(spark, wanted, engine="python").orderBy("offset").collect()
        assert len(ours) == count
        assert ours == read_batch(spark, wanted, engine="jvm").orderBy("offset").collect()


def test_worker_killed_in_the_first_batch_loses_nothing(
    spark, topic, produce, options, tmp_path
) -> None:
    """kill -9 of the Python process that reads: the query fails and resumes where it was."""
    import os
    import signal

    from kafkaesque.pipeline.sinks.delta_table import BatchIdentity, read_table
    from kafkaesque.pipeline.sinks.writing import to_table

    produce(topic, [{"value": b"x", "partition": i % 2} for i in range(60)])
    mark = tmp_path / "killed"

    def dying(batches):
        for batch in batches:
            if not mark.exists():
                mark.touch()
                os.kill(os.getpid(), signal.SIGKILL)
            yield batch

    def write(rows, number: int) -> None:
        alive = rows.mapInArrow(dying, rows.schema)
        to_table(alive, tmp_path / "t", BatchIdentity("q", "c", number))

    def run() -> None:
        wanted = options(topic, maxOffsetsPerTrigger="20")
        frame = read_stream(spark, wanted, checkpoint=tmp_path / "c")
        writer = frame.writeStream.foreachBatch(write)
        query = (
            writer.option("checkpointLocation", str(tmp_path / "c"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()

    with pytest.raises(Exception, match=r"(?i)worker|crashed|exited"):
        run()
    run()
    rows = read_table(spark, tmp_path / "t").select("partition", "offset").collect()
    assert sorted(tuple(row) for row in rows) == [(p, o) for p in range(2) for o in range(30)]


@pytest.mark.parametrize("moment", ["first batch", "later batch"])
def test_broker_killed_in_mid_stream_costs_nothing(spark, tmp_path, moment: str) -> None:
    from confluent_kafka import Producer
    from confluent_kafka.admin import NewTopic

    from kafkaesque.pipeline.sinks.delta_table import BatchIdentity, read_table
    from kafkaesque.pipeline.sinks.writing import to_table
    from kafkaesque.testing.broker_process import BrokerProcess

    with BrokerProcess(tmp_path / "broker") as broker:
        bootstrap = broker.bootstrap_servers
        admin = AdminClient({"bootstrap.servers": bootstrap})
        admin.create_topics([NewTopic("t", 2)])["t"].result()
        producer = Producer({"bootstrap.servers": bootstrap})
        for number in range(80):
            producer.produce("t", b"%d" % number, partition=number % 2)
        assert producer.flush(30) == 0
        producer.close()
        killed: list[int] = []

        def write(rows, number: int) -> None:
            if not killed and number == (0 if moment == "first batch" else 2):
                killed.append(number)
                broker.kill()
                broker.start()
            to_table(rows, tmp_path / "t", BatchIdentity("q", "c", number))

        wanted = {
            "kafka.bootstrap.servers": bootstrap,
            "subscribe": "t",
            "startingOffsets": "earliest",
            "maxOffsetsPerTrigger": "20",
        }
        frame = read_stream(spark, wanted, checkpoint=tmp_path / "c")
        query = (
            frame.writeStream.foreachBatch(write)
            .option("checkpointLocation", str(tmp_path / "c"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
    assert killed
    rows = read_table(spark, tmp_path / "t").select("partition", "offset").collect()
    assert sorted(tuple(row) for row in rows) == [(p, o) for p in range(2) for o in range(40)]


def test_queries_that_start_together_all_find_the_source(spark) -> None:
    for _ in range(10):
        session = spark.newSession()
        together = Barrier(8)

        def register(session=session, together=together) -> None:
            # As in the thread that created the session: Spark looks the name up in the active one.
            session._jvm.SparkSession.setActiveSession(session._jsparkSession)
            together.wait()
            register_source(session)

        with ThreadPoolExecutor(8) as threads:
            for started in [threads.submit(register) for _ in range(8)]:
                started.result()
