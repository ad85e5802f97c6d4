"""From a topic's settings and a log on disk to what a partition needs of both. Blocking."""

from __future__ import annotations

import logging
from contextlib import suppress

import msgspec

from kafkaesque.model.errors import CorruptMessage
from kafkaesque.model.settings import TopicConfig
from kafkaesque.partitions.markers import Marker, decode_marker
from kafkaesque.partitions.producers import ProducerTable
from kafkaesque.records.batch import BatchHeader
from kafkaesque.storage.config import LogConfig
from kafkaesque.storage.log import Log

logger = logging.getLogger(__name__)


def log_config(config: TopicConfig) -> LogConfig:
    """A topic's settings as its logs want them. A compacted topic discards nothing by age or size,
    and closes a segment before its records have waited too long for the cleaner."""
    lag_ms = config.max_compaction_lag_ms if config.is_compacted else config.segment_ms
    return LogConfig(
        segment_bytes=config.segment_bytes,
        segment_ms=min(config.segment_ms, lag_ms),
        segment_index_bytes=config.segment_index_bytes,
        index_interval_bytes=config.index_interval_bytes,
        retention_ms=config.retention_ms if config.deletes_old else -1,
        retention_bytes=config.retention_bytes if config.deletes_old else -1,
    )


def load_producers(log: Log) -> ProducerTable:
    """The producers of `log`, from its newest snapshot and the headers behind it. Blocking."""
    table = ProducerTable(log.log_start_offset)
    saved = log.latest_snapshot(log.log_end_offset)
    if saved is not None:
        # A snapshot is only a short cut: without it the headers tell the same.
        with suppress(msgspec.DecodeError):
            table = ProducerTable.restore(saved[1], saved[0])
    try:
        for header in log.headers_from(max(table.saved_offset, log.log_start_offset)):
            table.apply(header, read_marker(log, header) if header.is_control else None)
    except CorruptMessage as error:
        # One damaged header must not keep the rest of the node from starting. What lies behind it
        # is unknown here: a producer that wrote there is taken as new, and its retries as new too.
        logger.error("producers of %s are known only up to the damage: %s", log.directory, error)
    return table


def read_marker(log: Log, header: BatchHeader) -> Marker | None:
    """What a control batch of `log` says, which its header does not tell."""
    limit_offset = header.next_offset
    batch = log.read(header.base_offset, header.size_bytes, limit_offset=limit_offset).records
    return decode_marker(batch) if batch else None
