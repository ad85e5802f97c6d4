"""The settings of one log. Where they come from and what Kafka calls them is not known here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from kafkaesque.broker.storage.index import ENTRY_SIZE_BYTES
from kafkaesque.model.errors import InvalidConfig
from kafkaesque.model.settings import TopicConfig

_DAY_MS: Final = 24 * 60 * 60 * 1000
POSITION_MAX: Final = 2**31 - 1
"""Positions in an index have 32 bits, and Kafka's setting is an int."""


@dataclass(frozen=True, slots=True)
class LogConfig:
    """How a log is cut into segments and when old ones go."""

    segment_bytes: int = 1024 * 1024 * 1024
    """A segment is closed before it would grow beyond this; a larger batch has one of its own."""
    segment_ms: int = 7 * _DAY_MS
    """A segment is closed when a batch is younger than its first one by more than this."""
    index_interval_bytes: int = 4096
    """Bytes of batches for each index entry: smaller means larger indexes and shorter walks."""
    segment_index_bytes: int = 10 * 1024 * 1024
    """A segment is closed when its index would grow beyond this."""
    retention_ms: int = 7 * _DAY_MS
    """Segments whose youngest record is older than this may go; -1 keeps them for ever."""
    retention_bytes: int = -1
    """The oldest segments may go while the rest still has at least this size; -1 is no limit."""
    runway_bytes: int = 128 * 1024
    """So much is laid out at a time ahead of a segment that grows fast; 0 is nothing."""
    runway_from_bytes: int = 1024 * 1024
    """It grows fast if so much was appended since the last sync."""

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
        _require(0 <= self.runway_bytes <= POSITION_MAX, "runway_bytes", self.runway_bytes)


def _require(condition: bool, name: str, value: int) -> None:
    if not condition:
        raise InvalidConfig(f"{name}={value} is out of range")


def log_config(config: TopicConfig) -> LogConfig:
    """The settings of a topic's logs. A compacted topic deletes nothing by age or size, and closes a
    segment before its records have waited too long for the cleaner."""
    lag_ms = config.max_compaction_lag_ms if config.is_compacted else config.segment_ms
    return LogConfig(
        segment_bytes=config.segment_bytes,
        segment_ms=min(config.segment_ms, lag_ms),
        segment_index_bytes=config.segment_index_bytes,
        index_interval_bytes=config.index_interval_bytes,
        retention_ms=config.retention_ms if config.deletes_old else -1,
        retention_bytes=config.retention_bytes if config.deletes_old else -1,
    )
