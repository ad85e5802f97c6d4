"""Which records of a compacted log stay, and which of its segments are worth cleaning. Pure.

The rules are those of Apache Kafka's Cleaner, CleanedTransactionMetadata and LogCleanerManager:

- Of each key the newest record stays. Older ones go, if the newest lies in what was looked at.
- A newest record without a value (a tombstone) stays until its batch's delete horizon, which the
  first cleaning that meets it sets (KIP-534): whoever reads the log from its start within that time
  learns that the key was deleted.
- Records of an aborted transaction go. The marker of a transaction stays until no batch of it is
  left, and from then on until a delete horizon as well: who has read a record must meet its marker.
- The last batch of a producer that is remembered stays, if need be without records, so that its
  epoch and its last sequence can be read from the log.
- The last batch of what is cleaned stays, if need be without records, so that the log's end can.

Offsets never change, and the order neither.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from kafkaesque.broker.storage.segment import SegmentFacts
from kafkaesque.model.ids import Offset, TimestampMs
from kafkaesque.records.batch import BatchHeader
from kafkaesque.records.rewriting import Keep, delete_horizon_ms


class AbortedRange(NamedTuple):
    """A transaction that was aborted: from its first record to its marker."""

    producer_id: int
    first_offset: int
    last_offset: int


class ProducerEnd(NamedTuple):
    """What the log must still tell of a producer that is remembered."""

    epoch: int
    last_base_offset: int
    """Of its last batch with records; -1 if it has none in this epoch: then a marker tells it."""


class BatchDecision(NamedTuple):
    """What becomes of a batch."""

    are_records_dropped: bool
    """All of them; else each is asked."""
    stays_empty: bool
    """The batch stays even if no record of it does."""
    needs_horizon: bool
    """It is a marker that nothing needs any more, except those who may have read its records."""


class CleanableLimits(NamedTuple):
    """What a log may be cleaned by, and when."""

    stable_offset: Offset
    """Nothing at or behind it is touched: it is not committed, or its transaction not ended."""
    min_lag_ms: int
    max_lag_ms: int


class Cleanable(NamedTuple):
    """The part of a log that a cleaning would look at: [log start, `end_offset`)."""

    first_dirty_offset: Offset
    """What lies before was cleaned: each key stands there once."""
    end_offset: Offset
    """The first offset of a segment."""
    clean_bytes: int
    dirty_bytes: int
    is_due: bool
    """Whatever the ratio: a record is older than the longest lag, or a tombstone is due."""

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
    """`segments` ascend; the last one is the active one, which is never cleaned.

    `next_horizon_ms` is when the first tombstone of the clean part may go; -1 if there is none.
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
    """The first offset of the first segment that must not be touched yet."""
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
    """Whether a record stays: it is the newest of its key, and a tombstone is not yet due.

    `newest` has the newest offset of each key that was looked at; a record of another key, or
    behind all that was looked at, is not in it and stays. `horizon_ms` is that of its batch.
    """
    may_drop_tombstones = horizon_ms is not None and horizon_ms <= now_ms

    def keep(offset: int, key: bytes | None, has_value: bool) -> bool:
        if key is None or newest.get(key, -1) > offset:
            return False
        return has_value or not may_drop_tombstones

    return keep


class TransactionTracker:
    """Walks over a log from its start and says which batches are an aborted transaction's, and
    which markers have outlived their transaction."""

    def __init__(self, aborted: Iterable[AbortedRange]) -> None:
        self._coming = sorted(aborted, key=lambda row: row.first_offset, reverse=True)
        self._aborted: dict[int, AbortedRange] = {}
        """Producers within an aborted transaction."""
        self._met: set[AbortedRange | None] = set()
        """Aborted transactions of which a batch was met."""
        self._committed: set[int] = set()
        """Producers of which a batch was met that is not an aborted transaction's."""

    def is_aborted(self, header: BatchHeader) -> bool:
        """Whether the records of a batch, which is no marker, are void."""
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
        """Whether nothing is left of the transaction that this marker ended; `is_commit` is None
        for a marker whose record is gone already."""
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
        """Enter the transactions that begin at or before this batch."""
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
    """What becomes of the next batch of a walk; `is_commit` of a marker tells which."""
    stays_empty = is_last_batch_of_producer(header, producers)
    if not header.is_control:
        return BatchDecision(tracker.is_aborted(header), stays_empty, False)
    if not tracker.is_marker_obsolete(header, is_commit=is_commit):
        return BatchDecision(False, stays_empty, False)
    horizon_ms = delete_horizon_ms(header)
    is_over = is_commit is None or (horizon_ms is not None and horizon_ms <= now_ms)
    return BatchDecision(is_over, stays_empty, horizon_ms is None and not is_over)


def is_last_batch_of_producer(header: BatchHeader, producers: Mapping[int, ProducerEnd]) -> bool:
    """Whether this is the batch from which a remembered producer's end is read."""
    end = producers.get(header.producer_id)
    if end is None:
        return False
    if end.last_base_offset >= 0:
        return header.base_offset == end.last_base_offset
    return header.is_control and header.producer_epoch == end.epoch
