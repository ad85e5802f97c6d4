"""Does a table hold what the log holds: counts, gaps and repeats of offsets, partition by partition.

Offsets of a log have gaps by right (compaction, transaction markers, aborted records): a gap in the
table is wrong only where the log has a record.
"""

from __future__ import annotations

from datetime import datetime

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

LOG_SCHEMA = (
    "topic string, partition int, log_start long, log_end long, reached long, "
    "waiting_since timestamp"
)
"""reached: up to where the table should be whole; waiting_since: null where no record is behind it."""

POSITION = ("topic", "partition", "offset")


def offset_counts(rows: DataFrame) -> DataFrame:
    """Of rows with topic, partition and offset: how many, from where to where, how many twice."""
    return rows.groupBy("topic", "partition").agg(
        F.count(F.lit(1)).alias("rows"),
        F.count_distinct("offset").alias("offsets"),
        F.min("offset").alias("first_offset"),
        F.max("offset").alias("last_offset"),
    )


def lost_counts(records: DataFrame, rows: DataFrame) -> DataFrame:
    """How many `records` of the log are not among `rows`; partitions that lack none are left out."""
    missing = records.select(*POSITION).join(
        rows.select(*POSITION), on=list(POSITION), how="left_anti"
    )
    return missing.groupBy("topic", "partition").agg(F.count(F.lit(1)).alias("lost"))


def compare(counts: DataFrame, log: DataFrame, lost: DataFrame, due: datetime) -> DataFrame:
    """Each partition of the log beside what the table has of it. `log` has LOG_SCHEMA.

    gaps: offsets between the table's first and last that it lacks, for whatever reason.
    lost: records of the log that it lacks and should have (`lost_counts`).
    behind: offsets that it has not come to yet; a fault where the first record is older than `due`.
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
        .when(beyond, "the table is ahead of the log: the topic was made anew")
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
    """What somebody must look at."""
    return report.where(F.col("verdict") != "ok")
