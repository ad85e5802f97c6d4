"""What the log says elsewhere about the rows of a backfill or replay, before they are swapped in.

A range of the log knows nothing of its surroundings: a post that stands before it and is repeated in
it would come twice, and one that was deleted after it would come back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from deltalake import DeltaTable
from pyspark.sql import functions as F

from kafkaesque.pipeline.jobs.posts import deletions, open_posts
from kafkaesque.pipeline.operate.context import Context
from kafkaesque.pipeline.operate.outputs import DELETIONS_AT_ONCE, delete_posts, quoted
from kafkaesque.pipeline.sinks.delta_table import open_table, read_table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def settle_posts(
    side: Context, live: Context, in_range: str | None, later: DataFrame | None
) -> None:
    """`side` without posts that `live` has outside the range, and without those deleted `later`."""
    path = side.table("posts")
    if open_table(path) is None:
        return
    if in_range is not None and open_table(live.table("posts")) is not None:
        elsewhere = read_table(live.spark, live.table("posts")).where(~F.expr(in_range))
        mine = read_table(side.spark, path).select("event_id")
        known = mine.join(elsewhere.select("event_id"), on="event_id", how="left_semi")
        _forget(side, sorted(row["event_id"] for row in known.distinct().collect()))
    if later is not None:
        delete_posts(side, deletions(open_posts(later)))


def _forget(side: Context, events: list[str]) -> None:
    for start in range(0, len(events), DELETIONS_AT_ONCE):
        listed = ", ".join(quoted(event) for event in events[start : start + DELETIONS_AT_ONCE])
        DeltaTable(side.table("posts")).delete(f"event_id IN ({listed})")
