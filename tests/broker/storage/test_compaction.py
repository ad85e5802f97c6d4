"""Which records compaction keeps: the rules of Kafka's cleaner."""

from __future__ import annotations

import pytest

from kafkaesque.broker.storage.rules.compaction import (
    AbortedRange,
    CleanableLimits,
    ProducerEnd,
    TransactionTracker,
    choose_cleanable,
    decide_batch,
    is_last_batch_of_producer,
    newest_only,
)
from kafkaesque.broker.storage.rules.segment_facts import SegmentFacts
from kafkaesque.model.ids import (
    LeaderEpoch,
    Offset,
    ProducerEpoch,
    ProducerId,
    TimestampMs,
)
from kafkaesque.records.batch import BatchHeader
from kafkaesque.records.layout import CONTROL_BIT, TRANSACTIONAL_BIT
from kafkaesque.records.rewriting import DELETE_HORIZON_BIT

DAY_MS = 86_400_000
FOR_EVER = 2**63 - 1


def header(
    offset: int,
    *,
    count: int = 1,
    producer: int = -1,
    epoch: int = 0,
    attributes: int = 0,
    base_timestamp: int = 0,
) -> BatchHeader:
    return BatchHeader(
        Offset(offset),
        100,
        LeaderEpoch(1),
        2,
        0,
        attributes,
        count - 1,
        TimestampMs(base_timestamp),
        TimestampMs(0),
        ProducerId(producer),
        ProducerEpoch(epoch),
        0,
        count,
    )


def data(offset: int, producer: int, **more: int) -> BatchHeader:
    return header(offset, producer=producer, attributes=TRANSACTIONAL_BIT, **more)


def marker(offset: int, producer: int, *, horizon_ms: int | None = None) -> BatchHeader:
    attributes = TRANSACTIONAL_BIT | CONTROL_BIT
    if horizon_ms is None:
        return header(offset, producer=producer, attributes=attributes)
    attributes |= DELETE_HORIZON_BIT
    return header(offset, producer=producer, attributes=attributes, base_timestamp=horizon_ms)


@pytest.mark.parametrize(
    ("offset", "key", "has_value", "horizon_ms", "stays"),
    [
        (10, b"a", True, None, True),  # the newest
        (9, b"a", True, None, False),  # superseded
        (9, b"unseen", True, None, True),  # a key outside the mapped part
        (11, b"a", True, None, True),  # after the mapped part
        (10, None, True, None, False),  # a compacted topic has no records without a key
        (10, b"a", False, None, True),  # a tombstone without a horizon yet
        (10, b"a", False, 501, True),  # a tombstone that is not due
        (10, b"a", False, 500, False),  # a tombstone that is due
        (9, b"a", False, 501, False),  # a superseded tombstone
        (10, b"a", True, 500, True),  # a horizon is for tombstones only
    ],
)
def test_newest_record_is_kept_unless_it_is_a_due_tombstone(
    offset: int, key: bytes | None, has_value: bool, horizon_ms: int | None, stays: bool
) -> None:
    horizon = None if horizon_ms is None else TimestampMs(horizon_ms)
    assert newest_only({b"a": 10}, horizon, 500)(offset, key, has_value) is stays


def test_only_batches_within_an_aborted_transaction_are_void() -> None:
    tracker = TransactionTracker([AbortedRange(7, 10, 14)])
    assert not tracker.is_aborted(data(5, 7))
    assert tracker.is_marker_obsolete(marker(6, 8), is_commit=True)
    assert not tracker.is_marker_obsolete(marker(7, 7), is_commit=True)
    assert tracker.is_aborted(data(10, 7))
    assert not tracker.is_aborted(data(11, 9))
    assert not tracker.is_aborted(header(12, producer=7))
    assert not tracker.is_marker_obsolete(marker(14, 7), is_commit=False)
    assert not tracker.is_aborted(data(15, 7))


def test_aborted_transaction_ends_even_if_its_marker_is_missing() -> None:
    tracker = TransactionTracker([AbortedRange(7, 10, 14)])
    assert not tracker.is_aborted(data(20, 7))


def test_marker_is_obsolete_when_no_batch_of_its_transaction_is_left() -> None:
    tracker = TransactionTracker([AbortedRange(7, 10, 14), AbortedRange(7, 20, 24)])
    assert tracker.is_marker_obsolete(marker(14, 7), is_commit=False)
    assert tracker.is_aborted(data(22, 7))
    assert not tracker.is_marker_obsolete(marker(24, 7), is_commit=False)
    assert tracker.is_marker_obsolete(marker(30, 7), is_commit=True)


@pytest.mark.parametrize(
    ("horizon_ms", "is_commit", "expected"),
    [
        (None, True, (False, False, True)),  # first cleaning: gets its horizon
        (501, True, (False, False, False)),  # kept until the horizon
        (500, True, (True, False, False)),  # removed
        (500, False, (True, False, False)),
        (None, None, (True, False, False)),  # its record was removed before
    ],
)
def test_obsolete_marker_is_kept_until_its_delete_horizon(
    horizon_ms: int | None, is_commit: bool | None, expected: tuple[bool, bool, bool]
) -> None:
    batch = marker(5, 7, horizon_ms=horizon_ms)
    assert decide_batch(batch, TransactionTracker([]), {}, 500, is_commit=is_commit) == expected


def test_marker_of_a_transaction_that_has_batches_is_unchanged() -> None:
    tracker = TransactionTracker([])
    tracker.is_aborted(data(4, 7))
    decision = decide_batch(marker(5, 7, horizon_ms=0), tracker, {}, 500, is_commit=True)
    assert decision == (False, False, False)


@pytest.mark.parametrize(
    ("batch", "end", "expected"),
    [
        (data(40, 7), ProducerEnd(0, 40), True),
        (data(39, 7), ProducerEnd(0, 40), False),
        (data(40, 8), ProducerEnd(0, 40), False),
        (marker(41, 7), ProducerEnd(0, 40), False),
        (marker(41, 7), ProducerEnd(0, -1), True),
        (marker(41, 7), ProducerEnd(1, -1), False),
    ],
)
def test_last_batch_of_a_producer_is_recognized(
    batch: BatchHeader, end: ProducerEnd, expected: bool
) -> None:
    assert is_last_batch_of_producer(batch, {7: end}) is expected


def segments(*rows: tuple[int, int, int]) -> list[SegmentFacts]:
    """(first offset, first timestamp, last timestamp), of 100 bytes each."""
    return [
        SegmentFacts(Offset(base), 100, TimestampMs(first), TimestampMs(last))
        for base, first, last in rows
    ]


THREE = segments((0, 100, 190), (10, 200, 290), (20, 300, 390))
LIMITS = CleanableLimits(Offset(1000), 0, FOR_EVER)


@pytest.mark.parametrize(
    ("limits", "dirty", "expected_end", "expected_ratio"),
    [
        (LIMITS, 0, 20, 1.0),
        (LIMITS, 10, 20, 0.5),
        (LIMITS, 20, 20, 0.0),
        (LIMITS, 15, 20, 0.5),  # a cleaning that stopped within a segment
        (LIMITS._replace(stable_offset=Offset(19)), 0, 10, 1.0),
        (LIMITS._replace(stable_offset=Offset(20)), 0, 20, 1.0),
        (LIMITS._replace(stable_offset=Offset(9)), 0, 0, 0.0),
        (LIMITS._replace(min_lag_ms=111), 0, 10, 1.0),  # now is 400: 290 is too young
        (LIMITS._replace(min_lag_ms=110), 0, 20, 1.0),
        (LIMITS._replace(min_lag_ms=1000), 20, 20, 0.0),  # the clean part is not counted again
    ],
)
def test_cleanable_is_what_is_closed_stable_and_old_enough(
    limits: CleanableLimits, dirty: int, expected_end: int, expected_ratio: float
) -> None:
    found = choose_cleanable(THREE, Offset(dirty), -1, limits, 400)
    assert (found.end_offset, found.dirty_ratio) == (expected_end, expected_ratio)
    assert not found.is_due


@pytest.mark.parametrize(
    ("max_lag_ms", "dirty", "horizon_ms", "is_due"),
    [
        (300, 0, -1, False),
        (299, 0, -1, True),
        (299, 10, -1, False),  # the oldest dirty record is of 200
        (FOR_EVER, 20, 401, False),
        (FOR_EVER, 20, 400, True),  # a tombstone may go
        (FOR_EVER, 0, 400, False),  # nothing was cleaned, so nothing waits
    ],
)
def test_cleaning_is_due_by_lag_and_by_horizon(
    max_lag_ms: int, dirty: int, horizon_ms: int, is_due: bool
) -> None:
    limits = LIMITS._replace(max_lag_ms=max_lag_ms)
    assert choose_cleanable(THREE, Offset(dirty), horizon_ms, limits, 400).is_due is is_due
