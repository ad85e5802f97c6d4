"""The settings of one log, derived from its topic's settings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from kafkaesque.broker.storage.index import ENTRY_SIZE_BYTES
from kafkaesque.model.errors import InvalidConfig
from kafkaesque.model.settings import TopicConfig

_DAY_MS: Final = 24 * 60 * 60 * 1000
POSITION_MAX: Final = 2**31 - 1
"""Index entries store positions in 32 bits, and Kafka's `segment.bytes` is an int."""


@dataclass(frozen=True, slots=True)
class LogConfig:
    """When a log rolls its segments and when it deletes old ones."""

    segment_bytes: int = 1024 * 1024 * 1024
    """A segment is closed before it grows beyond this; a larger batch gets its own segment."""
    segment_ms: int = 7 * _DAY_MS
    """A segment is closed when a batch is younger than its first one by more than this."""
    index_interval_bytes: int = 4096
    """Bytes of batches per index entry. Smaller means larger indexes and shorter scans."""
    segment_index_bytes: int = 10 * 1024 * 1024
    """A segment is closed before its index grows beyond this."""
    retention_ms: int = 7 * _DAY_MS
    """Segments whose youngest record is older than this may be deleted; -1 for no limit."""
    retention_bytes: int = -1
    """The oldest segments may be deleted while the rest has at least this size; -1 for no limit."""
    preallocate_bytes: int = 128 * 1024
    """How many zero bytes to write at a time ahead of a segment that grows fast; 0 for none."""
    preallocate_after_bytes: int = 1024 * 1024
    """A segment grows fast if this many bytes were appended since the last sync."""

    def __post_init__(self) -> None:
        _require(1 <= self.segment_bytes <= POSITION_MAX, "segment_bytes", self.segment_bytes)
        _require(self.segment_ms >= 1, "segment_ms", self.segment_ms)
        _require(self.index_interval_bytes >= 0, "index_interval_bytes", self.index_interval_bytes)
        _require(
            self.segment_index_bytes >= ENTRY_SIZE_BYTES,
            "segment_index_bytes",
            self.segment_index_bytes,
        )
        _require(self.retention_ms >= -1, "retention_ms", self.retention_ms)
        _require(self.retention_bytes >= -1, "retention_bytes", self.retention_bytes)
        _require(
            0 <= self.preallocate_bytes <= POSITION_MAX, "preallocate_bytes", self.preallocate_bytes
        )


def _require(condition: bool, name: str, value: int) -> None:
    if not condition:
        raise InvalidConfig(f"{name}={value} is out of range")


def log_config(config: TopicConfig) -> LogConfig:
    """The log settings of a topic.

    A topic that is only compacted deletes nothing by age or size. A compacted topic closes a segment
    before its records have waited for the cleaner longer than `max.compaction.lag.ms`.
    """
    lag_ms = config.max_compaction_lag_ms if config.is_compacted else config.segment_ms
    return LogConfig(
        segment_bytes=config.segment_bytes,
        segment_ms=min(config.segment_ms, lag_ms),
        segment_index_bytes=config.segment_index_bytes,
        index_interval_bytes=config.index_interval_bytes,
        retention_ms=config.retention_ms if config.deletes_old else -1,
        retention_bytes=config.retention_bytes if config.deletes_old else -1,
    )
