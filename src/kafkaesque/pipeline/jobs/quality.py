"""Does a table hold what the log holds: counts, gaps and repeats of offsets, partition by partition.

Offsets of a log may have gaps by right (compaction, transaction markers): then `gaps` is not wrong,
and the rule that is applied says so.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

LOG_SCHEMA = "topic string, partition int, log_start long, log_end long, gaps_allowed boolean"


def offset_counts(rows: DataFrame) -> DataFrame:
    """Of rows with topic, partition and offset: how many, from where to where, how many twice."""
    return rows.groupBy("topic", "partition").agg(
        F.count(F.lit(1)).alias("rows"),
        F.count_distinct("offset").alias("offsets"),
        F.min("offset").alias("first_offset"),
        F.max("offset").alias("last_offset"),
    )


def compare(counts: DataFrame, log: DataFrame) -> DataFrame:
    """Each partition of the log beside what the table has of it. `log` has LOG_SCHEMA.

    lost: offsets between the table's first and last that it lacks, where none may be lacking.
    behind: records at the end that are not in the table yet, which is no fault.
    """
    joined = log.join(counts, on=["topic", "partition"], how="full_outer")
    rows = F.coalesce("rows", F.lit(0))
    duplicates = rows - F.coalesce("offsets", F.lit(0))
    gaps = F.coalesce(F.col("last_offset") - F.col("first_offset") + 1 - F.col("offsets"), F.lit(0))
    lost = F.when(F.coalesce("gaps_allowed", F.lit(False)), F.lit(0)).otherwise(gaps)
    beyond = F.coalesce(F.col("last_offset") >= F.col("log_end"), F.lit(False))
    behind = F.greatest(
        F.col("log_end") - F.coalesce(F.col("last_offset") + 1, F.col("log_start")), F.lit(0)
    )
    verdict = (
        F.when(F.col("log_end").isNull(), "the log has no such partition")
        .when(duplicates > 0, "rows are doubled")
        .when(lost > 0, "rows are missing")
        .when(beyond, "the table is ahead of the log: the topic was made anew")
        .otherwise("ok")
    )
    return joined.select(
        "topic",
        "partition",
        rows.alias("rows"),
        duplicates.alias("duplicates"),
        gaps.alias("gaps"),
        lost.alias("lost"),
        F.coalesce(behind, F.lit(0)).alias("behind"),
        "first_offset",
        "last_offset",
        "log_start",
        "log_end",
        verdict.alias("verdict"),
    )


def alerts(report: DataFrame) -> DataFrame:
    """What somebody must look at."""
    return report.where(F.col("verdict") != "ok")
