"""Posts of social networks: cleaned rows for a table, and the deletions to apply to it.

Events: `kafkaesque.events.social` (social.post, social.post.edited, social.post.deleted).
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, LongType, StringType, StructField, StructType

from kafkaesque.pipeline.jobs.envelopes import parse_envelopes, valid_events

POST = "social.post"
EDITED = "social.post.edited"
DELETED = "social.post.deleted"
KINDS = {POST: 1, EDITED: 1, DELETED: 1}

TAG_LENGTH_MAX = 100
_TAG = r"#([\p{L}\p{N}_]+)"
_CONTROLS = r"[\p{Cc}&&[^\n\t]]"

BODY = StructType(
    [
        StructField("network", StringType()),
        StructField("id", StringType()),
        StructField("author", StringType()),
        StructField("text", StringType()),
        StructField("tags", ArrayType(StringType())),
        StructField("languages", ArrayType(StringType())),
        StructField("created_ms", LongType()),
        StructField("seen_ms", LongType()),
        StructField("edited_ms", LongType()),
        StructField("deleted_ms", LongType()),
        StructField("url", StringType()),
        StructField("reply_to", StringType()),
    ]
)
KEY = ("network", "id")


def parse_posts(records: DataFrame) -> DataFrame:
    """Parses post events; invalid ones get a `reason`."""
    return parse_envelopes(records, BODY, KINDS, KEY)


def clean_posts(events: DataFrame) -> DataFrame:
    """One row per post or edit: clean text, hashtags, language. Deletions give no row."""
    body = F.col("body")
    text = F.trim(F.regexp_replace(F.coalesce(body["text"], F.lit("")), _CONTROLS, ""))
    return (
        valid_events(events)
        .where(F.col("kind").isin(POST, EDITED))
        .select(
            "event_id",
            body["network"].alias("network"),
            body["id"].alias("id"),
            body["author"].alias("author"),
            text.alias("text"),
            _tags(body["tags"], text).alias("tags"),
            _language(body["languages"]).alias("language"),
            (F.col("kind") == EDITED).alias("is_edit"),
            F.timestamp_millis(body["created_ms"]).alias("created_at"),
            F.col("event_time").alias("seen_at"),
            body["url"].alias("url"),
            body["reply_to"].alias("reply_to"),
            F.to_date("event_time").alias("date"),
            "topic",
            "partition",
            "offset",
        )
    )


def _tags(given: Column, text: Column) -> Column:
    """The hashtags given by the source, else those in the text; lowercase and distinct."""
    found = F.regexp_extract_all(text, F.lit(_TAG), F.lit(1))
    chosen = F.when(F.size(F.coalesce(given, F.array())) > 0, given).otherwise(found)
    folded = F.transform(chosen, lambda tag: F.lower(F.ltrim(F.trim(tag), F.lit("#"))))
    return F.array_distinct(
        F.filter(folded, lambda tag: (F.length(tag) > 0) & (F.length(tag) <= TAG_LENGTH_MAX))
    )


def _language(languages: Column) -> Column:
    """The first language without its region; `und` (BCP 47) if none is given."""
    first = F.get(languages, F.lit(0))
    return F.coalesce(F.nullif(F.lower(F.substring_index(first, "-", 1)), F.lit("")), F.lit("und"))


def deletions(events: DataFrame) -> DataFrame:
    """The posts that their authors deleted."""
    body = F.col("body")
    return (
        valid_events(events)
        .where(F.col("kind") == DELETED)
        .select(
            body["network"].alias("network"),
            body["id"].alias("id"),
            F.timestamp_millis(body["deleted_ms"]).alias("deleted_at"),
        )
        .distinct()
    )


def without_deleted(posts: DataFrame, deleted: DataFrame) -> DataFrame:
    return posts.join(deleted.select(*KEY), on=list(KEY), how="left_anti")


def first_occurrences(posts: DataFrame) -> DataFrame:
    """Each event once: the record with the lowest position among repeats in the log."""
    from pyspark.sql import Window

    order = Window.partitionBy("event_id").orderBy("partition", "offset")
    return (
        posts.withColumn("_rank", F.row_number().over(order))
        .where(F.col("_rank") == 1)
        .drop("_rank")
    )


def without_known(posts: DataFrame, known: DataFrame) -> DataFrame:
    """Posts whose event is not in `known`: a source may repeat an event days later."""
    return posts.join(known.select("event_id"), on="event_id", how="left_anti")
