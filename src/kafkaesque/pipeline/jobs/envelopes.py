"""Parses records of a service's topic into typed events, and into dead letters where that fails.

The format is `kafkaesque.events.envelope`: {"id", "kind", "version", "time_ms", "source", "body"}.
No row is dropped here: an invalid record keeps its position and gets a `reason`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import IntegerType, LongType, StringType, StructField, StructType

VALUE_SIZE_BYTES_MAX = 1 << 20
"""A larger value becomes a dead letter unparsed: parsing it could use the memory of a whole task."""
DEAD_VALUE_BYTES_KEPT = 4096
CLOCK_SKEW_MAX = "5 minutes"
"""How far an event's own time may be ahead of its record's timestamp. Beyond that the timestamp is used:
one clock that runs ahead would move the watermark and make all other events late."""

_CORRUPT = "_corrupt"


def parse_envelopes(
    records: DataFrame, body: StructType, kinds: Mapping[str, int], required: Sequence[str]
) -> DataFrame:
    """One row per record: position, event, `body`, and `reason` if it is invalid.

    `kinds` maps the known kinds to their newest version; `required` are the fields of `body` that
    every kind must have.
    """
    schema = StructType(
        [
            StructField("id", StringType()),
            StructField("kind", StringType()),
            StructField("version", IntegerType()),
            StructField("time_ms", LongType()),
            StructField("source", StringType()),
            StructField("body", body),
            StructField(_CORRUPT, StringType()),
        ]
    )
    size_bytes = F.octet_length("value")
    readable = F.when(size_bytes <= VALUE_SIZE_BYTES_MAX, F.col("value").cast("string"))
    parsed = F.from_json(readable, schema, {"columnNameOfCorruptRecord": _CORRUPT})
    opened = records.withColumn("_event", parsed).withColumn("_size", size_bytes)
    reason = _reason(kinds, required)
    logged_at = F.col("timestamp")
    own_time = F.timestamp_millis("_event.time_ms")
    latest = logged_at + F.expr(f"interval {CLOCK_SKEW_MAX}")
    return opened.select(
        "topic",
        "partition",
        "offset",
        logged_at.alias("logged_at"),
        F.when(reason.isNull(), F.col("_event.id")).alias("event_id"),
        F.col("_event.kind").alias("kind"),
        F.when(own_time.isNull() | (own_time > latest), logged_at)
        .otherwise(own_time)
        .alias("event_time"),
        (own_time > latest).alias("clock_ahead"),
        F.col("_event.source").alias("source"),
        F.when(reason.isNull(), F.col("_event.body")).alias("body"),
        reason.alias("reason"),
        F.when(reason.isNotNull(), F.substring(F.col("value"), 1, DEAD_VALUE_BYTES_KEPT)).alias(
            "value"
        ),
    )


def _reason(kinds: Mapping[str, int], required: Sequence[str]) -> Column:
    """The first error of a record as text; null if it is valid."""
    event = F.col("_event")
    known = F.array(*[F.lit(kind) for kind in kinds])
    newest = F.element_at(
        F.create_map(*[F.lit(item) for pair in kinds.items() for item in pair]), event["kind"]
    )
    lacking = F.filter(
        F.array(*[F.when(event["body"][name].isNull(), F.lit(name)) for name in required]),
        lambda name: name.isNotNull(),
    )
    return (
        F.when(F.col("value").isNull(), "no value")
        .when(
            F.col("_size") > VALUE_SIZE_BYTES_MAX,
            F.concat(F.lit("too large: "), F.col("_size"), F.lit(" bytes")),
        )
        .when(~F.is_valid_utf8(F.col("value").cast("string")), "not UTF-8")
        .when(event.isNull() | event[_CORRUPT].isNotNull(), "not JSON of an event")
        .when(event["id"].isNull() | event["kind"].isNull(), "no envelope: id or kind is missing")
        .when(
            ~F.array_contains(known, event["kind"]),
            F.concat(F.lit("unknown kind "), event["kind"]),
        )
        .when(
            F.coalesce(event["version"], F.lit(1)) > newest,
            F.concat(F.lit("unknown version "), event["version"], F.lit(" of "), event["kind"]),
        )
        .when(F.size(lacking) > 0, F.concat(F.lit("the body lacks "), F.array_join(lacking, ", ")))
    )


def dead_letters(events: DataFrame) -> DataFrame:
    """Position, reason and first bytes of each invalid record."""
    return events.where(F.col("reason").isNotNull()).select(
        "topic", "partition", "offset", "logged_at", "reason", "value"
    )


def valid_events(events: DataFrame) -> DataFrame:
    """The valid events, without the columns of dead letters."""
    return events.where(F.col("reason").isNull()).drop("reason", "value")
