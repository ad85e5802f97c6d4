"""The transform of each named query: records of its topics to the rows that its sink takes."""

from __future__ import annotations

from pyspark.sql import DataFrame

from kafkaesque.pipeline.jobs import chat
from kafkaesque.pipeline.jobs.archive import archive_rows
from kafkaesque.pipeline.jobs.posts import clean_posts, open_posts
from kafkaesque.pipeline.jobs.trends import hashtag_windows
from kafkaesque.pipeline.operate.context import Knobs


def posts(records: DataFrame, _knobs: Knobs) -> DataFrame:
    return open_posts(records)


def hashtags(records: DataFrame, knobs: Knobs) -> DataFrame:
    return hashtag_windows(clean_posts(open_posts(records)), knobs.trends)


def chat_events(records: DataFrame, _knobs: Knobs) -> DataFrame:
    return chat.open_chat(records)


def chat_minutes(records: DataFrame, knobs: Knobs) -> DataFrame:
    return chat.per_minute(chat.stages(chat.open_chat(records)), knobs.late_s)


def chat_latency(records: DataFrame, knobs: Knobs) -> DataFrame:
    return chat.latencies(chat.stages(chat.open_chat(records)), knobs.late_s)


def chat_sessions(records: DataFrame, knobs: Knobs) -> DataFrame:
    return chat.sessions(chat.stages(chat.open_chat(records)), knobs.session_gap_s, knobs.late_s)


def archive(records: DataFrame, _knobs: Knobs) -> DataFrame:
    return archive_rows(records)
