"""`read_stream` and `read_batch`: two engines with the same columns, options and offsets."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Literal

from kafkaesque.pipeline.errors import InvalidOption, JarsUnavailable
from kafkaesque.pipeline.rules.offsets import Partition, to_json
from kafkaesque.pipeline.source.checkpoint import pin_initial_offsets
from kafkaesque.pipeline.source.options import (
    BATCH_NAMES,
    Bound,
    KafkaReadOptions,
    kafka_properties,
    read_kafka_security,
    read_options,
)
from kafkaesque.pipeline.source.planning import Planner

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Engine = Literal["auto", "python", "jvm"]

_REGISTRATION = Lock()
_JVM_FORMAT = "kafka"
_JVM_TUNING = {
    # Twice the throughput of the connector's defaults (docs/PIPELINE.md).
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
    """Whether this session has Spark's own Kafka connector."""
    return any(
        "spark-sql-kafka" in name for name in (spark.conf.get("spark.jars", "") or "").split(",")
    )


def choose_engine(
    spark: SparkSession, engine: Engine, options: Mapping[str, str]
) -> Literal["python", "jvm"]:
    """`auto` is the Python engine, which needs no jars, unless the options require what only Java
    supports (Kerberos, a JKS store)."""
    if engine == "auto":
        engine = "python" if is_supported_by_python(options) or not has_connector(spark) else "jvm"
    if engine == "jvm" and not has_connector(spark):
        raise JarsUnavailable(
            "engine=jvm: the session has no Kafka connector", "`kafkaesque pipeline jars --fetch`"
        )
    return engine


def is_supported_by_python(options: Mapping[str, str]) -> bool:
    """Whether our own client can authenticate with these options."""
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

    `checkpoint` must be the one that the query will be started with: the initial offsets are written
    to it now. A query that reads several streams numbers them with `source`.
    """
    chosen = choose_engine(spark, engine, options)
    if chosen == "jvm" and not is_supported_by_python(options):
        # Only the connector can reach the broker; it keeps its own initial offsets in the checkpoint.
        return _open(spark.readStream, spark, dict(options), chosen)
    checked = read_options(options, streaming=True)
    given = _without(options, _START_NAMES)
    start = pin_initial_offsets(Path(checkpoint), lambda: _resolve(checked, checked.start), source)
    given["startingOffsets"] = to_json(start)
    return _open(spark.readStream, spark, given, chosen)


def read_batch(
    spark: SparkSession, options: Mapping[str, str], *, engine: Engine = "auto"
) -> DataFrame:
    """The records between two offsets or times, as a batch.

    Both ends are resolved to numbers here, so that an action that runs twice reads the same records.
    """
    chosen = choose_engine(spark, engine, options)
    if chosen == "jvm" and not is_supported_by_python(options):
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
        raise InvalidOption(f"{reader!r} is not a DataFrameReader or DataStreamReader")
    if engine == "jvm":
        tuned = {**_JVM_TUNING, **_without(given, ("kafkaesque.decoder",))}
        return reader.format(_JVM_FORMAT).options(**tuned).load()
    from kafkaesque.pipeline.source.data_source import FORMAT

    register_source(spark)
    return reader.format(FORMAT).options(**given).load()


def register_source(spark: SparkSession) -> None:
    """Makes our data source known to a session, by its name. May be called again, from any thread.

    Spark looks the name up and then stores it. If another thread stores it in between, Spark raises
    DATA_SOURCE_ALREADY_EXISTS, so queries that start together must take turns.
    """
    from kafkaesque.pipeline.source.data_source import TopicSource

    with _REGISTRATION:
        spark.dataSource.register(TopicSource)


def _resolve(options: KafkaReadOptions, bound: Bound) -> dict[Partition, int]:
    planner = Planner(options)
    try:
        return planner.resolve(bound)
    finally:
        planner.close()


def _without(options: Mapping[str, str], names: tuple[str, ...]) -> dict[str, str]:
    return {name: str(value) for name, value in options.items() if name.lower() not in names}
