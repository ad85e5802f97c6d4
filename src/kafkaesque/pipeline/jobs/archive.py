"""Every record of every topic as a row of one table, byte for byte."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

PARTITION_BY = ("topic", "date")


def archive_rows(records: DataFrame) -> DataFrame:
    """Records with the day they belong to. Headers only where the source was asked for them."""
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
