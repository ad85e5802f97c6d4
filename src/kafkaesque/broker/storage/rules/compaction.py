"""Which records of a compacted log are kept, and which segments are worth cleaning. Pure.

The rules are those of Apache Kafka's Cleaner, CleanedTransactionMetadata and LogCleanerManager:

- The newest record of each key is kept. Older ones are removed if the newest is in the mapped part.
- A newest record without a value (a tombstone) is kept until its batch's delete horizon, which the
  first cleaning that meets it sets (KIP-534). A consumer that reads the log from its start within
  that time learns that the key was deleted.
- Records of an aborted transaction are removed. A transaction's marker is kept until no batch of the
  transaction is left, and then until a delete horizon as well: a consumer that has read a record
  must also see its marker.
- The last batch of each live producer is kept, if need be without records, so that the producer's
  epoch and last sequence can be read from the log.
- The last batch of the cleaned part is kept, if need be without records, so that the log's end
  offset can be read from the log.

Offsets and order never change.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from kafkaesque.broker.storage.rules.segment_facts import SegmentFacts
from kafkaesque.model.ids import Offset, TimestampMs
from kafkaesque.records.batch import BatchHeader
from kafkaesque.records.rewriting import Keep, delete_horizon_ms


class AbortedRange(NamedTuple):
    """An aborted transaction: from its first record to its marker."""

    producer_id: int
    first_offset: int
    last_offset: int


class ProducerEnd(NamedTuple):
    """The last state of a live producer, which the log must preserve."""

    epoch: int
    last_base_offset: int
    """Base offset of its last batch with records; -1 if it has none in this epoch. Then a marker
    carries the epoch."""


class BatchDecision(NamedTuple):
    """What a cleaning does with a batch."""

    are_records_dropped: bool
    """Drop all records; otherwise each record is decided by itself."""
    stays_empty: bool
    """Keep the batch even if no record of it is kept."""
    needs_horizon: bool
    """An obsolete marker that gets its delete horizon now, for consumers that may have read records
    of its transaction."""


class CleanableLimits(NamedTuple):
    """Limits on which part of a log may be cleaned."""

    stable_offset: Offset
    """Nothing at or after it is cleaned: it is uncommitted or in an open transaction."""
    min_lag_ms: int
    max_lag_ms: int


class Cleanable(NamedTuple):
    """The part of a log that a cleaning would process: [log start, `end_offset`)."""

    first_dirty_offset: Offset
    """Everything before it was cleaned: each key occurs there once."""
    end_offset: Offset
    """The base offset of a segment."""
    clean_bytes: int
    dirty_bytes: int
    is_due: bool
    """Clean regardless of the dirty ratio: a record exceeds `max_lag_ms`, or a tombstone is due."""

    @property
    def dirty_ratio(self) -> float:
        total = self.clean_bytes + self.dirty_bytes
        return self.dirty_bytes / total if total else 0.0


def choose_cleanable(
    segments: Sequence[SegmentFacts],
    first_dirty_offset: Offset,
    next_horizon_ms: int,
    limits: CleanableLimits,
    now_ms: int,
) -> Cleanable:
    """Returns the part of a log that may be cleaned now.

    `segments` ascend; the last one is the active one, which is never cleaned. `next_horizon_ms` is
    when the first tombstone of the clean part may be removed; -1 if there is none.
    """
    end_offset = _end_of_cleanable(segments, first_dirty_offset, limits, now_ms)
    before = [pair for pair in pairwise(segments) if pair[0].base_offset < end_offset]
    dirty = [s for s, following in before if following.base_offset > first_dirty_offset]
    clean_bytes = sum(s.size_bytes for s, _ in before) - sum(s.size_bytes for s in dirty)
    oldest_ms = min((s.first_timestamp for s in dirty if s.first_timestamp >= 0), default=now_ms)
    is_late = bool(dirty) and now_ms - oldest_ms > limits.max_lag_ms
    is_horizon_due = 0 <= next_horizon_ms <= now_ms and clean_bytes > 0
    return Cleanable(
        first_dirty_offset,
        end_offset,
        clean_bytes,
        sum(s.size_bytes for s in dirty),
        is_late or is_horizon_due,
    )


def _end_of_cleanable(
    segments: Sequence[SegmentFacts],
    first_dirty_offset: Offset,
    limits: CleanableLimits,
    now_ms: int,
) -> Offset:
    """The base offset of the first segment that must not be cleaned yet."""
    for segment, following in pairwise(segments):
        is_stable = following.base_offset <= limits.stable_offset
        is_young = (
            limits.min_lag_ms > 0
            and following.base_offset > first_dirty_offset
            and segment.max_timestamp > now_ms - limits.min_lag_ms
        )
        if not is_stable or is_young:
            return segment.base_offset
    return segments[-1].base_offset


def newest_only(newest: Mapping[bytes, int], horizon_ms: TimestampMs | None, now_ms: int) -> Keep:
    """Returns a filter that keeps the newest record of each key, except tombstones that are due.

    `newest` maps each key to its newest offset in the mapped part. Records of other keys and records
    after the mapped part are kept. `horizon_ms` is the delete horizon of the batch.
    """
    may_drop_tombstones = horizon_ms is not None and horizon_ms <= now_ms

    def keep(offset: int, key: bytes | None, has_value: bool) -> bool:
        if key is None or newest.get(key, -1) > offset:
            return False
        return has_value or not may_drop_tombstones

    return keep


class TransactionTracker:
    """Follows a scan of a log from its start to determine which batches belong to aborted transactions
    and which markers are obsolete."""

    def __init__(self, aborted: Iterable[AbortedRange]) -> None:
        self._coming = sorted(aborted, key=lambda row: row.first_offset, reverse=True)
        self._aborted: dict[int, AbortedRange] = {}
        """Producers in an aborted transaction at the current batch."""
        self._met: set[AbortedRange | None] = set()
        """Aborted transactions that still have a batch."""
        self._committed: set[int] = set()
        """Producers that have a batch in a transaction that was not aborted."""

    def is_aborted(self, header: BatchHeader) -> bool:
        """Whether a batch, which must not be a marker, belongs to an aborted transaction."""
        self._advance(header)
        if not header.is_transactional:
            return False
        row = self._aborted.get(header.producer_id)
        if row is not None and header.base_offset <= row.last_offset:
            self._met.add(row)
            return True
        self._committed.add(header.producer_id)
        return False

    def is_marker_obsolete(self, header: BatchHeader, *, is_commit: bool | None) -> bool:
        """Whether no batch is left of the transaction that this marker ended.

        `is_commit` is None for a marker whose record was already removed.
        """
        self._advance(header)
        if is_commit is None:
            return True
        if is_commit:
            is_met = header.producer_id in self._committed
            self._committed.discard(header.producer_id)
            return not is_met
        row = self._aborted.pop(header.producer_id, None)
        return row not in self._met

    def _advance(self, header: BatchHeader) -> None:
        """Adds the aborted transactions that begin at or before this batch."""
        while self._coming and self._coming[-1].first_offset <= header.last_offset:
            row = self._coming.pop()
            self._aborted[row.producer_id] = row


def decide_batch(
    header: BatchHeader,
    tracker: TransactionTracker,
    producers: Mapping[int, ProducerEnd],
    now_ms: int,
    *,
    is_commit: bool | None = None,
) -> BatchDecision:
    """Decides about the next batch of a scan. `is_commit` is for markers only."""
    stays_empty = is_last_batch_of_producer(header, producers)
    if not header.is_control:
        return BatchDecision(tracker.is_aborted(header), stays_empty, False)
    if not tracker.is_marker_obsolete(header, is_commit=is_commit):
        return BatchDecision(False, stays_empty, False)
    horizon_ms = delete_horizon_ms(header)
    is_over = is_commit is None or (horizon_ms is not None and horizon_ms <= now_ms)
    return BatchDecision(is_over, stays_empty, horizon_ms is None and not is_over)


def is_last_batch_of_producer(header: BatchHeader, producers: Mapping[int, ProducerEnd]) -> bool:
    """Whether this batch carries the last state of a live producer."""
    end = producers.get(header.producer_id)
    if end is None:
        return False
    if end.last_base_offset >= 0:
        return header.base_offset == end.last_base_offset
    return header.is_control and header.producer_epoch == end.epoch
