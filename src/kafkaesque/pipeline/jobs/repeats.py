"""For readers of topics that the pipeline writes: drop what a restarted batch sent twice."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from kafkaesque.pipeline.jobs.identity import BATCH_HEADER, QUERY_HEADER, ROW_HEADER


def header(name: str) -> Column:
    """The first header of that name as text, null where there is none."""
    found = F.filter("headers", lambda item: item["key"] == name)
    return F.get(found, F.lit(0))["value"].cast("string")


def drop_repeats(records: DataFrame) -> DataFrame:
    """Each row of each batch once; records without an identity stay as they are.

    For rows at rest; a stream needs `withWatermark` before it, as any dropDuplicates does.
    """
    own = F.concat_ws("/", "topic", "partition", "offset")
    identity = F.coalesce(
        F.concat_ws("/", header(QUERY_HEADER), header(BATCH_HEADER), header(ROW_HEADER)), own
    )
    has_identity = header(ROW_HEADER).isNotNull()
    marked = records.withColumn("_identity", F.when(has_identity, identity).otherwise(own))
    return marked.dropDuplicates(["_identity"]).drop("_identity")
