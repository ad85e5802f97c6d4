"""Says how far long work is: a stream by its offsets, a batch by its tasks."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from kafkaesque.pipeline.kafka.cluster import Partition
from kafkaesque.pipeline.operate.progress import summarize
from kafkaesque.pipeline.source.offsets import from_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

Watch = Callable[[str, int, int], None]
"""(what is counted, done, of how many)"""
POLL_S = 1.0


def nobody(_what: str, _done: int, _total: int) -> None:
    """For who does not want to know."""


def await_end(
    streaming: StreamingQuery,
    start: Mapping[Partition, int],
    end: Mapping[Partition, int],
    watch: Watch,
) -> None:
    """Until the query has ended, well or not."""
    total = sum(end.values()) - sum(start.values())
    pause = threading.Event()
    while streaming.isActive:
        last = streaming.lastProgress
        if last is not None:
            watch("records", done_records(json.loads(last.json), start, end), total)
        pause.wait(POLL_S)


def done_records(
    progress: Mapping[str, Any], start: Mapping[Partition, int], end: Mapping[Partition, int]
) -> int:
    """Offsets of the range behind a batch; a stream may be beyond the range already."""
    reached = from_spark(summarize("", progress).end_offsets)
    return sum(
        max(0, min(offset, end.get(place, 0)) - start.get(place, 0))
        for place, offset in reached.items()
    )


@contextmanager
def watched_job(spark: SparkSession, watch: Watch) -> Iterator[None]:
    """Tasks of the jobs that run meanwhile."""
    tracker = spark.sparkContext.statusTracker()
    over = threading.Event()

    def look() -> None:
        while not over.wait(POLL_S):
            stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
            known = [stage for stage in stages if stage is not None]
            if known:
                done = sum(stage.numCompletedTasks for stage in known)
                watch("tasks", done, sum(stage.numTasks for stage in known))

    looking = threading.Thread(target=look, daemon=True)
    looking.start()
    try:
        yield
    finally:
        over.set()
        looking.join()
