"""The identity headers of records that the pipeline writes, and dropping repeats by them.

A batch that was cut off is sent again (`sinks/topic_sender.py`). Each record carries the query, the
batch and its place in the batch, so that a reader can recognize a record it has already seen.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

QUERY_HEADER: Final = "kafkaesque-query"
"""Query and checkpoint: `NAME/ID`."""
BATCH_HEADER: Final = "kafkaesque-batch"
ROW_HEADER: Final = "kafkaesque-row"
"""Place in the batch: `TASK/NUMBER`."""


def header(name: str) -> Column:
    """The first header of that name as text; null if there is none."""
    found = F.filter("headers", lambda item: item["key"] == name)
    return F.get(found, F.lit(0))["value"].cast("string")


def drop_repeats(records: DataFrame) -> DataFrame:
    """Keeps each row of each batch once, and all records without identity headers.

    For batch reads; a stream needs `withWatermark` first, as with any dropDuplicates.
    """
    own = F.concat_ws("/", "topic", "partition", "offset")
    identity = F.coalesce(
        F.concat_ws("/", header(QUERY_HEADER), header(BATCH_HEADER), header(ROW_HEADER)), own
    )
    has_identity = header(ROW_HEADER).isNotNull()
    marked = records.withColumn("_identity", F.when(has_identity, identity).otherwise(own))
    return marked.dropDuplicates(["_identity"]).drop("_identity")
