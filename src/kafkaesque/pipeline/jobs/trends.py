"""Hashtag trends in sliding windows: post counts, burst score, ranking.

Table, live topic and backfill use one aggregation. Repeats of a post count once: a window keeps the
set of its posts' hashes, which needs no second state and is exact up to 64-bit collisions.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F


@dataclass(frozen=True, slots=True)
class TrendSettings:
    """Windows of `window_s` that start every `slide_s`; rows later than `late_s` are dropped as late."""

    window_s: int = 600
    slide_s: int = 60
    late_s: int = 120
    top: int = 50

    def __post_init__(self) -> None:
        if not 0 < self.slide_s < self.window_s or self.window_s % self.slide_s:
            raise ValueError("window_s must be a multiple of slide_s and larger than it")


def hashtag_windows(posts: DataFrame, settings: TrendSettings) -> DataFrame:
    """One row per hashtag and window. `posts` comes from `clean_posts`, as a stream or a batch.

    `recent` counts the posts of the window's last slide. The burst score is how far that is above
    the rate of the rest of the window, in standard deviations of a Poisson process.
    """
    tagged = (
        posts.withWatermark("seen_at", f"{settings.late_s} seconds")
        .where(~F.col("is_edit"))
        .select(
            "seen_at",
            "author",
            F.xxhash64("network", "id").alias("post"),
            F.explode("tags").alias("hashtag"),
        )
    )
    windowed = tagged.groupBy(
        F.window("seen_at", f"{settings.window_s} seconds", f"{settings.slide_s} seconds"),
        "hashtag",
    )
    counted = windowed.agg(
        F.collect_set("post").alias("_posts"),
        F.collect_set(
            F.when(
                F.unix_micros("seen_at")
                >= F.unix_micros(F.col("window.end")) - settings.slide_s * 1_000_000,
                F.col("post"),
            )
        ).alias("_recent"),
        F.approx_count_distinct("author").alias("authors"),
    )
    posts_count, recent = F.size("_posts"), F.size("_recent")
    slides = settings.window_s // settings.slide_s - 1
    expected = (posts_count - recent) / F.lit(float(slides))
    return counted.select(
        F.col("window.start").alias("window_start"),
        F.col("window.end").alias("window_end"),
        "hashtag",
        posts_count.alias("posts"),
        recent.alias("recent"),
        "authors",
        # One is added to the variance, so that a new hashtag has a finite score.
        F.round((recent - expected) / F.sqrt(expected + 1.0), 3).alias("burst"),
    )


def top_trends(windows: DataFrame, settings: TrendSettings) -> DataFrame:
    """The `top` hashtags of each window with their rank; ties are broken by burst, then by name."""
    order = Window.partitionBy("window_start", "window_end").orderBy(
        F.col("posts").desc(), F.col("burst").desc(), F.col("hashtag")
    )
    return (
        windows.withColumn("rank", F.row_number().over(order))
        .where(F.col("rank") <= settings.top)
        .select(
            "window_start", "window_end", "rank", "hashtag", "posts", "recent", "authors", "burst"
        )
    )


def trend_records(trends: DataFrame) -> DataFrame:
    """Records for a topic. The key is window and hashtag, so that the newest record of a key is valid."""
    names = [name for name in trends.columns if name != "rank"]
    fields = [
        (F.unix_millis(name) if name.startswith("window_") else F.col(name)).alias(
            f"{name}_ms" if name.startswith("window_") else name
        )
        for name in (*names, *(["rank"] if "rank" in trends.columns else []))
    ]
    return trends.select(
        F.concat_ws("/", F.unix_millis("window_start"), F.col("hashtag"))
        .cast("binary")
        .alias("key"),
        F.to_json(F.struct(*fields)).cast("binary").alias("value"),
    )
