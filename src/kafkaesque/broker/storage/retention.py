"""Which of the oldest segments may go, by age and by size. A pure choice, without files or clock."""

from __future__ import annotations

from collections.abc import Sequence

from kafkaesque.broker.storage.config import LogConfig
from kafkaesque.broker.storage.segment import SegmentFacts
from kafkaesque.model.ids import Offset


def choose_expired(
    segments: Sequence[SegmentFacts],
    log_end_offset: Offset,
    committed_offset: Offset,
    now_ms: int,
    config: LogConfig,
) -> int:
    """How many segments, from the oldest on, may be deleted; they may be all of them.

    `segments` ascend, the last one is the active one and ends at `log_end_offset`. None that ends
    behind `committed_offset` goes. As in Kafka's UnifiedLog, an age is that of the youngest record
    of a segment, so a timestamp in the future keeps its segment and all behind it, and an empty
    active segment stays. Records without timestamps are as old as their segment.
    """
    size_bytes = sum(segment.size_bytes for segment in segments)
    ends = [segment.base_offset for segment in segments[1:]] + [log_end_offset]
    count = 0
    for segment, end_offset in zip(segments, ends, strict=True):
        is_empty_active = segment is segments[-1] and segment.size_bytes == 0
        if is_empty_active or end_offset > committed_offset:
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
