"""What is known of a segment without its file."""

from __future__ import annotations

import msgspec

from kafkaesque.model.ids import NO_TIMESTAMP, Offset, TimestampMs


class SegmentFacts(msgspec.Struct, frozen=True, array_like=True):
    """A segment's metadata, kept so that opening it does not read the file."""

    base_offset: Offset
    size_bytes: int = 0
    first_timestamp: TimestampMs = NO_TIMESTAMP
    """Maximum timestamp of the first batch, or its arrival time if it has none. For rolling by age."""
    max_timestamp: TimestampMs = NO_TIMESTAMP
    max_timestamp_position: int = 0
    """Position of the first batch with `max_timestamp`."""
    index_count: int = 0
