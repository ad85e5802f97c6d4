"""Reads a range of a topic to its end, for services that rebuild their state from the log."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Mapping, Sequence

from kafkaesque.client.ports import Assignment, Log, LogUnavailable, Received, Span
from kafkaesque.model.ids import Offset, TopicPartition

READ_RECORDS = 1000
SILENCE_SECONDS_MAX = 30.0
"""A log that has records but returns none for this long is considered unavailable."""


async def read_stretch(
    log: Log, stretch: Mapping[TopicPartition, Span], *, wait_s: float = 0.5
) -> AsyncIterator[Sequence[Received]]:
    """Yields the committed records of each span in batches, then ends.

    Records after a span's end may be included if they are already there.
    """
    ends = {place: span.end for place, span in stretch.items() if span.start < span.end}
    if not ends:
        return
    reader = await log.open_reader(Assignment({place: stretch[place].start for place in ends}))
    silence_s = 0.0
    try:
        while ends:
            before = await reader.positions()
            records = await reader.read(READ_RECORDS, wait_s)
            if records:
                yield records
            after = await reader.positions()
            silence_s = 0.0 if before != after else silence_s + wait_s
            if silence_s >= SILENCE_SECONDS_MAX:
                raise LogUnavailable(f"no records from {', '.join(map(str, ends))}")
            ends = {place: end for place, end in ends.items() if after.get(place, Offset(0)) < end}
    finally:
        await reader.close()


async def last_records_stretch(log: Log, topic: str, count: int) -> Mapping[TopicPartition, Span]:
    """Spans that contain the last `count` records of a topic if its keys are spread evenly.

    Takes twice the fair share of each partition, because keys are never spread quite evenly.
    """
    spans = await log.admin.spans(topic)
    share = math.ceil(2 * count / len(spans)) if len(spans) > 1 else count
    return {
        place: Span(Offset(max(span.start, span.end - share)), span.end)
        for place, span in spans.items()
    }
