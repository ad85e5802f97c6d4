"""The archive: every record of every topic as a row of one table, and whether it is complete.

The log's offsets have legitimate gaps (compaction, transaction markers, aborted records). A gap in
the table is an error only where the log has a record.
"""

from __future__ import annotations

from datetime import datetime

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

PARTITION_BY = ("topic", "date")
POSITION = ("topic", "partition", "offset")
LOG_SCHEMA = (
    "topic string, partition int, log_start long, log_end long, reached long, "
    "waiting_since timestamp"
)
"""reached: up to where the table should be complete; waiting_since: the time of the first record after
that, null if there is none."""


def archive_rows(records: DataFrame) -> DataFrame:
    """Records byte for byte, with their day. Headers are null unless the source includes them."""
    headers = (
        F.col("headers")
        if "headers" in records.columns
        else F.lit(None).cast("array<struct<key: string, value: binary>>")
    )
    return records.select(
        "topic",
        F.to_date("timestamp").alias("date"),
        "partition",
        "offset",
        "timestamp",
        F.when(F.col("timestampType") == 1, "append").otherwise("create").alias("timestamp_kind"),
        "key",
        "value",
        headers.alias("headers"),
    )


def offset_counts(rows: DataFrame) -> DataFrame:
    """Rows, distinct offsets, first and last offset of each partition."""
    return rows.groupBy("topic", "partition").agg(
        F.count(F.lit(1)).alias("rows"),
        F.count_distinct("offset").alias("offsets"),
        F.min("offset").alias("first_offset"),
        F.max("offset").alias("last_offset"),
    )


def lost_counts(records: DataFrame, rows: DataFrame) -> DataFrame:
    """Counts the `records` of the log that are not among `rows`, for partitions that lack any."""
    missing = records.select(*POSITION).join(
        rows.select(*POSITION), on=list(POSITION), how="left_anti"
    )
    return missing.groupBy("topic", "partition").agg(F.count(F.lit(1)).alias("lost"))


def compare(counts: DataFrame, log: DataFrame, lost: DataFrame, due: datetime) -> DataFrame:
    """Compares each partition of the log (LOG_SCHEMA) with the table and gives a verdict.

    gaps: offsets between the table's first and last that it lacks, for any reason.
    lost: records of the log that it should have but lacks (`lost_counts`).
    behind: offsets it has not reached yet; an error if the first such record is older than `due`.
    """
    key = ["topic", "partition"]
    joined = log.join(counts, on=key, how="full_outer").join(lost, on=key, how="left")
    rows = F.coalesce("rows", F.lit(0))
    duplicates = rows - F.coalesce("offsets", F.lit(0))
    gaps = F.coalesce(F.col("last_offset") - F.col("first_offset") + 1 - F.col("offsets"), F.lit(0))
    missing = F.coalesce("lost", F.lit(0))
    beyond = F.coalesce(F.col("last_offset") >= F.col("log_end"), F.lit(False))
    waits = F.col("waiting_since").isNotNull()
    behind = F.when(waits, F.col("log_end") - F.greatest("reached", "log_start")).otherwise(0)
    verdict = (
        F.when(F.col("log_end").isNull(), "the log has no such partition")
        .when(duplicates > 0, "rows are doubled")
        .when(missing > 0, "rows are missing")
        .when(beyond, "the table is ahead of the log: the topic was recreated")
        .when(waits & (F.col("waiting_since") < F.lit(due)), "the table is behind")
        .otherwise("ok")
    )
    return joined.select(
        "topic",
        "partition",
        rows.alias("rows"),
        duplicates.alias("duplicates"),
        gaps.alias("gaps"),
        missing.alias("lost"),
        F.greatest(behind, F.lit(0)).alias("behind"),
        "first_offset",
        "last_offset",
        "log_start",
        "log_end",
        "waiting_since",
        verdict.alias("verdict"),
    )


def alerts(report: DataFrame) -> DataFrame:
    """The partitions with an error."""
    return report.where(F.col("verdict") != "ok")
