"""Finds records by timestamp: the batch by index and headers, the record by decoding the batch.

The broker does not decode a producer's batch unless full validation is on, so a batch with a valid
checksum may contain no valid records. A lookup then answers for the batch as a whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from kafkaesque.broker.storage.open_files import OpenFiles
from kafkaesque.broker.storage.segment import Segment
from kafkaesque.model.errors import InvalidRecord, UnsupportedCompressionType
from kafkaesque.model.ids import NO_TIMESTAMP, LeaderEpoch, Offset, TimestampMs
from kafkaesque.records.batch import BatchHeader
from kafkaesque.records.codec import check_records, find_timestamp

Locate = Callable[[Segment, TimestampMs], int]
"""The position in the segment where a scan for a timestamp can start."""


class TimestampedOffset(NamedTuple):
    timestamp: TimestampMs
    offset: Offset
    leader_epoch: LeaderEpoch


def find_first(
    segments: Iterable[Segment],
    files: OpenFiles,
    timestamp: TimestampMs,
    start_offset: Offset,
    locate: Locate,
) -> TimestampedOffset | None:
    """The first record at or after `start_offset` whose timestamp is at least `timestamp`."""
    for segment in segments:
        if segment.max_timestamp < timestamp or segment.size_bytes == 0:
            continue
        for position, header in segment.headers(files, locate(segment, timestamp)):
            if header.max_timestamp < timestamp or header.next_offset <= start_offset:
                continue
            batch = segment.read_batch(files, position, header.size_bytes)
            try:
                found = find_timestamp(batch, 0, timestamp, from_offset=start_offset)
            except (InvalidRecord, UnsupportedCompressionType):
                found = header.max_timestamp, max(start_offset, header.base_offset)
            if found is not None:
                return TimestampedOffset(*found, header.leader_epoch)
    return None


def find_latest(
    segments: Iterable[Segment], files: OpenFiles, start_offset: Offset
) -> TimestampedOffset | None:
    """The first record with the largest timestamp of all; None if no record has one."""
    best: tuple[Segment, int, BatchHeader] | None = None
    for segment in segments:
        if segment.max_timestamp < 0 or (best and segment.max_timestamp <= best[2].max_timestamp):
            continue
        # If the log start moved past that batch, the rest of the segment follows it.
        for at, header in segment.headers(files, segment.max_timestamp_position):
            is_later = header.max_timestamp > (best[2].max_timestamp if best else NO_TIMESTAMP)
            if is_later and header.next_offset > start_offset and header.record_count:
                best = segment, at, header
                if header.max_timestamp == segment.max_timestamp:
                    break
    if best is None:
        return None
    segment, position, header = best
    batch = segment.read_batch(files, position, header.size_bytes)
    try:
        summary = check_records(batch, dense=False)
    except (InvalidRecord, UnsupportedCompressionType):
        return TimestampedOffset(header.max_timestamp, header.last_offset, header.leader_epoch)
    offset = max(start_offset, summary.max_timestamp_offset)
    return TimestampedOffset(summary.max_timestamp, offset, header.leader_epoch)
