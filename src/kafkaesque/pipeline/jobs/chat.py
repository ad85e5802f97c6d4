"""Chat analytics: message rates, active users, latencies, undelivered and unread messages.

Events (topic `chat.events`, envelope of `kafkaesque.events.envelope`), one per message and stage:

    chat.message.sent       body: message_id, conversation_id, sender, recipient, sent_ms
    chat.message.queued     the same body: sent while the recipient was not connected
    chat.message.delivered  body: message_id, conversation_id, sender, recipient, sent_ms, delivered_ms
    chat.message.read       body: message_id, conversation_id, sender, recipient, sent_ms, read_ms
    chat.message.deleted    body: message_id, conversation_id, sender, recipient, sent_ms, deleted_ms

Every stage carries `sent_ms`, so that latencies need no join; the envelope's `time_ms` is the time of
the stage. No event contains the text of a message.
"""

from __future__ import annotations

from datetime import datetime

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StringType, StructField, StructType

from kafkaesque.pipeline.jobs.envelopes import parse_envelopes, valid_events

TOPIC = "chat.events"
SENT = "chat.message.sent"
QUEUED = "chat.message.queued"
DELIVERED = "chat.message.delivered"
READ = "chat.message.read"
DELETED = "chat.message.deleted"
KINDS = {SENT: 1, QUEUED: 1, DELIVERED: 1, READ: 1, DELETED: 1}

LATE_S = 120
SESSION_GAP_S = 30 * 60
UNREAD_AFTER_S = 24 * 3600

BODY = StructType(
    [
        StructField("message_id", StringType()),
        StructField("conversation_id", StringType()),
        StructField("sender", StringType()),
        StructField("recipient", StringType()),
        StructField("sent_ms", LongType()),
        StructField("delivered_ms", LongType()),
        StructField("read_ms", LongType()),
        StructField("deleted_ms", LongType()),
    ]
)
REQUIRED = ("message_id", "conversation_id", "sender", "sent_ms")


def parse_chat(records: DataFrame) -> DataFrame:
    """Parses chat events; invalid ones get a `reason`."""
    return parse_envelopes(records, BODY, KINDS, REQUIRED)


def stages(events: DataFrame) -> DataFrame:
    """One flat row per stage of a message."""
    return valid_events(events).select(
        "kind",
        "event_time",
        "event_id",
        "body.message_id",
        "body.conversation_id",
        "body.sender",
        "body.recipient",
        F.timestamp_millis("body.sent_ms").alias("sent_at"),
        F.timestamp_millis("body.delivered_ms").alias("delivered_at"),
        F.timestamp_millis("body.read_ms").alias("read_at"),
        F.timestamp_millis("body.deleted_ms").alias("deleted_at"),
        "topic",
        "partition",
        "offset",
    )


def per_minute(stages: DataFrame, late_s: int = LATE_S) -> DataFrame:
    """Messages and active users of each minute. A message counts once even if its event repeats."""
    sent = stages.where(F.col("kind") == SENT).withWatermark("event_time", f"{late_s} seconds")
    counted = sent.groupBy(F.window("event_time", "1 minute")).agg(
        F.size(F.collect_set(F.xxhash64("message_id"))).alias("messages"),
        F.approx_count_distinct("sender").alias("active_users"),
        F.approx_count_distinct("conversation_id").alias("active_conversations"),
    )
    return counted.select(
        F.col("window.start").alias("minute"), "messages", "active_users", "active_conversations"
    )


def latencies(stages: DataFrame, late_s: int = LATE_S) -> DataFrame:
    """Delivery and read latency of the messages delivered or read in each minute."""
    since = F.unix_millis("event_time") - F.unix_millis("sent_at")
    timed = stages.where(F.col("kind").isin(DELIVERED, READ)).withWatermark(
        "event_time", f"{late_s} seconds"
    )
    # A clock that lags yields negative latencies: they become zero and are counted.
    latency_ms = F.greatest(since, F.lit(0))
    counted = timed.groupBy(F.window("event_time", "1 minute"), "kind").agg(
        F.count(F.lit(1)).alias("events"),
        F.sum((since < 0).cast("int")).alias("clock_behind"),
        F.percentile_approx(latency_ms, F.array(F.lit(0.5), F.lit(0.99))).alias("_quantiles"),
        F.max(latency_ms).alias("latency_max_ms"),
    )
    return counted.select(
        F.col("window.start").alias("minute"),
        F.when(F.col("kind") == READ, "read").otherwise("delivery").alias("stage"),
        "events",
        "clock_behind",
        F.col("_quantiles")[0].alias("latency_p50_ms"),
        F.col("_quantiles")[1].alias("latency_p99_ms"),
        "latency_max_ms",
    )


def sessions(stages: DataFrame, gap_s: int = SESSION_GAP_S, late_s: int = LATE_S) -> DataFrame:
    """Sessions of a conversation: stretches without a silence longer than `gap_s`."""
    sent = stages.where(F.col("kind") == SENT).withWatermark("event_time", f"{late_s} seconds")
    grouped = sent.groupBy(F.session_window("event_time", f"{gap_s} seconds"), "conversation_id")
    counted = grouped.agg(
        F.size(F.collect_set(F.xxhash64("message_id"))).alias("messages"),
        F.approx_count_distinct("sender").alias("speakers"),
        F.min("event_time").alias("started_at"),
        F.max("event_time").alias("last_message_at"),
    )
    return counted.select(
        "conversation_id", "started_at", "last_message_at", "messages", "speakers"
    )


def message_states(stages: DataFrame) -> DataFrame:
    """One row per message with the first time of each stage. For batches only, not for streams."""
    return stages.groupBy("message_id").agg(
        F.first("conversation_id", ignorenulls=True).alias("conversation_id"),
        F.first("sender", ignorenulls=True).alias("sender"),
        F.first("recipient", ignorenulls=True).alias("recipient"),
        F.min("sent_at").alias("sent_at"),
        F.min("delivered_at").alias("delivered_at"),
        F.min("read_at").alias("read_at"),
        F.min("deleted_at").alias("deleted_at"),
    )


def undelivered(states: DataFrame, now: datetime) -> DataFrame:
    """Undelivered messages by recipient: how many, and the oldest."""
    waiting = states.where(
        F.col("delivered_at").isNull()
        & F.col("read_at").isNull()
        & F.col("deleted_at").isNull()
        & (F.col("sent_at") <= F.lit(now))
    )
    return waiting.groupBy("recipient").agg(
        F.count(F.lit(1)).alias("messages"),
        F.min("sent_at").alias("oldest_sent_at"),
        F.max((F.unix_millis(F.lit(now)) - F.unix_millis("sent_at")) / 1000).alias("oldest_age_s"),
    )


def unread(states: DataFrame, now: datetime, after_s: int = UNREAD_AFTER_S) -> DataFrame:
    """Messages unread for longer than `after_s`, for which a reminder mail is due."""
    age_ms = F.unix_millis(F.lit(now)) - F.unix_millis("sent_at")
    return states.where(
        F.col("read_at").isNull() & F.col("deleted_at").isNull() & (age_ms > after_s * 1000)
    ).select("message_id", "conversation_id", "sender", "recipient", "sent_at")
