"""Which of the oldest segments may go, by age and by size. A pure choice, without files or clock."""

from __future__ import annotations

from collections.abc import Sequence

from kafkaesque.model.ids import Offset
from kafkaesque.storage.config import LogConfig
from kafkaesque.storage.segment import SegmentFacts


def choose_expired(
    segments: Sequence[SegmentFacts], end_offset: Offset, now_ms: int, config: LogConfig
) -> int:
    """How many segments, from the oldest on, may be deleted; they may be all of them.

    `segments` ascend and the last one is the active one; nothing that ends behind `end_offset`
    goes (what is not committed cannot be expired). As in Kafka's UnifiedLog, an age is that of the
    youngest record of a segment, so a timestamp in the future keeps its segment and all behind it,
    and an empty active segment stays. Records without timestamps are as old as their segment.
    """
    size_bytes = sum(segment.size_bytes for segment in segments)
    count = 0
    for number, segment in enumerate(segments):
        is_last = number + 1 == len(segments)
        if is_last and segment.size_bytes == 0:
            break
        if not is_last and segments[number + 1].base_offset > end_offset:
            break
        remaining_bytes = size_bytes - segment.size_bytes
        youngest = max(segment.max_timestamp, segment.first_timestamp)
        is_old = 0 <= config.retention_ms < now_ms - youngest
        is_surplus = 0 <= config.retention_bytes <= remaining_bytes
        if not (is_old or is_surplus):
            break
        size_bytes = remaining_bytes
        count += 1
    return count
