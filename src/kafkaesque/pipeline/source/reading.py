"""`read_stream` and `read_batch`: one call, two engines, the same columns, options and offsets."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from kafkaesque.pipeline.errors import InvalidOption, JarsUnavailable
from kafkaesque.pipeline.kafka.cluster import Partition
from kafkaesque.pipeline.source.durable_start import durable_offsets
from kafkaesque.pipeline.source.offsets import to_json
from kafkaesque.pipeline.source.options import (
    BATCH_NAMES,
    Bound,
    SourceOptions,
    kafka_properties,
    read_kafka_security,
    read_options,
)
from kafkaesque.pipeline.source.planning import Planner

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Engine = Literal["auto", "python", "jvm"]

_JVM_FORMAT = "kafka"
_JVM_TUNING = {
    # Twice the throughput of the connector's own defaults (docs/PIPELINE.md).
    "kafka.max.poll.records": "10000",
    "kafka.max.partition.fetch.bytes": "4194304",
}
_START_NAMES = (
    "startingoffsets",
    "startingtimestamp",
    "startingoffsetsbytimestamp",
    "startingoffsetsbytimestampstrategy",
)


def has_connector(spark: SparkSession) -> bool:
    """Whether Spark's own Kafka connector is in this session."""
    return any(
        "spark-sql-kafka" in name for name in (spark.conf.get("spark.jars", "") or "").split(",")
    )


def choose_engine(
    spark: SparkSession, engine: Engine, options: Mapping[str, str]
) -> Literal["python", "jvm"]:
    """The Python engine, which needs nothing and is as fast, unless the other is named or the
    options want what only Java has (Kerberos, a JKS store)."""
    if engine == "auto":
        engine = "python" if speaks_python(options) or not has_connector(spark) else "jvm"
    if engine == "jvm" and not has_connector(spark):
        raise JarsUnavailable(
            "engine=jvm: the session has no Kafka connector", "`kafkaesque pipeline jars --fetch`"
        )
    return engine


def speaks_python(options: Mapping[str, str]) -> bool:
    """Whether our own client can log in with these options."""
    try:
        read_kafka_security(kafka_properties(options))
    except InvalidOption:
        return False
    return True


def read_stream(
    spark: SparkSession,
    options: Mapping[str, str],
    *,
    checkpoint: str | Path,
    engine: Engine = "auto",
    source: str = "0",
) -> DataFrame:
    """A stream of a topic's records. `options` are those of Spark's Kafka connector.

    `checkpoint` is the one that the query will be started with; where the stream begins is written
    into it now. A query that reads several streams numbers them by `source`.
    """
    chosen = choose_engine(spark, engine, options)
    if chosen == "jvm" and not speaks_python(options):
        # Only the connector can ask the broker; it keeps its own first offsets in the checkpoint.
        return _open(spark.readStream, spark, dict(options), chosen)
    checked = read_options(options, streaming=True)
    given = _without(options, _START_NAMES)
    start = durable_offsets(Path(checkpoint), lambda: _resolve(checked, checked.start), source)
    given["startingOffsets"] = to_json(start)
    return _open(spark.readStream, spark, given, chosen)


def read_batch(
    spark: SparkSession, options: Mapping[str, str], *, engine: Engine = "auto"
) -> DataFrame:
    """The records between two offsets or times, read once.

    Both ends are made numbers here, so that an action that is run twice reads the same records.
    """
    chosen = choose_engine(spark, engine, options)
    if chosen == "jvm" and not speaks_python(options):
        return _open(spark.read, spark, dict(options), chosen)
    checked = read_options(options, streaming=False)
    given = _without(options, (*_START_NAMES, *BATCH_NAMES))
    given["startingOffsets"] = to_json(_resolve(checked, checked.start))
    given["endingOffsets"] = to_json(_resolve(checked, checked.end))
    return _open(spark.read, spark, given, chosen)


def _open(reader: object, spark: SparkSession, given: dict[str, str], engine: str) -> DataFrame:
    from pyspark.sql import DataFrameReader
    from pyspark.sql.streaming.readwriter import DataStreamReader

    if not isinstance(reader, DataFrameReader | DataStreamReader):
        raise InvalidOption(f"{reader!r} reads nothing")
    if engine == "jvm":
        tuned = {**_JVM_TUNING, **_without(given, ("kafkaesque.decoder",))}
        return reader.format(_JVM_FORMAT).options(**tuned).load()
    from kafkaesque.pipeline.source.data_source import FORMAT, TopicSource

    spark.dataSource.register(TopicSource)
    return reader.format(FORMAT).options(**given).load()


def _resolve(options: SourceOptions, bound: Bound) -> dict[Partition, int]:
    planner = Planner(options)
    try:
        return planner.resolve(bound)
    finally:
        planner.close()


def _without(options: Mapping[str, str], names: tuple[str, ...]) -> dict[str, str]:
    return {name: str(value) for name, value in options.items() if name.lower() not in names}
