"""The sinks in a Spark query: a batch that is cut off and written again has effect once."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafkaesque.pipeline.sinks.delta_table import BatchIdentity, read_table
from kafkaesque.pipeline.sinks.writing import to_table, to_topic
from kafkaesque.pipeline.source.checkpoint import checkpoint_id
from kafkaesque.pipeline.source.reading import read_batch, read_stream


def test_stream_is_written_to_a_delta_table_once_with_either_engine(
    spark, topic, produce, options, tmp_path, connector
) -> None:
    checkpoint, table = tmp_path / "c", tmp_path / "t"
    for engine in ("python", "jvm"):
        produce(topic, [{"value": b"x", "partition": i % 2} for i in range(40)])
        frame = read_stream(spark, options(topic), checkpoint=checkpoint, engine=engine)

        def write(rows, number: int) -> None:
            own = BatchIdentity("q", checkpoint_id(checkpoint), number)
            to_table(rows, table, own, ("partition",))

        writer = frame.drop("key").writeStream.foreachBatch(write)
        query = (
            writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
        )
        query.awaitTermination()
    rows = read_table(spark, table)
    assert rows.count() == 80
    assert rows.select("partition", "offset").distinct().count() == 80
    assert read_table(spark, table, {"partition": [1]}).count() == 40


def test_repeated_batch_is_skipped_and_writes_no_file(spark, tmp_path: Path) -> None:
    rows = spark.range(10)
    batch = BatchIdentity("q", "c", 3)
    assert to_table(rows, tmp_path / "t", batch)
    files = sorted((tmp_path / "t").glob("*.parquet"))
    assert not to_table(rows, tmp_path / "t", batch)
    assert sorted((tmp_path / "t").glob("*.parquet")) == files
    assert read_table(spark, tmp_path / "t").count() == 10


def test_failed_batch_leaves_nothing_in_the_table(spark, tmp_path: Path) -> None:
    batch = BatchIdentity("q", "c", 0)
    bad = spark.range(10).selectExpr("if(id = 9, raise_error('boom'), id) as id")
    with pytest.raises(Exception, match="boom"):
        to_table(bad.selectExpr("cast(id as long) id"), tmp_path / "t", batch)
    assert to_table(spark.range(10), tmp_path / "t", batch)
    assert read_table(spark, tmp_path / "t").count() == 10


def test_records_of_a_topic_carry_their_batch(spark, topic, options, broker, tmp_path) -> None:
    from kafkaesque.pipeline.jobs.repeats import drop_repeats, header

    rows = spark.createDataFrame(
        [(b"k%d" % i, b"v%d" % i, [("own", b"1")]) for i in range(6)],
        "key binary, value binary, headers array<struct<key: string, value: binary>>",
    )
    kafka = {"bootstrap.servers": broker.bootstrap_servers}
    batch = BatchIdentity("q", "c", 7)
    assert to_topic(rows, topic, kafka, batch) == 6
    assert to_topic(rows, topic, kafka, batch) == 6
    written = read_batch(spark, options(topic, includeHeaders="true"))
    assert written.count() == 12
    once = drop_repeats(written)
    assert sorted(bytes(row["value"]) for row in once.collect()) == [b"v%d" % i for i in range(6)]
    facts = written.select(header("kafkaesque-query"), header("kafkaesque-batch"), header("own"))
    assert {tuple(row) for row in facts.collect()} == {("q/c", "7", "1")}


def test_topic_that_does_not_exist_fails_the_batch(spark, broker) -> None:
    rows = spark.createDataFrame([(b"v",)], "value binary")
    kafka = {"bootstrap.servers": broker.bootstrap_servers, "message.timeout.ms": "1500"}
    with pytest.raises(Exception, match="a record was not delivered"):
        to_topic(rows, "nowhere", kafka, BatchIdentity("q", "c", 0))
