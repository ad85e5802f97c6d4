"""Rules of idempotent producers: which sequences are accepted, and the result of a retry."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkaesque.broker.partitions.rules.producers import BATCHES_REMEMBERED, ProducerTable
from kafkaesque.model.errors import InvalidProducerEpoch, OutOfOrderSequence
from kafkaesque.model.ids import Offset, ProducerEpoch, ProducerId, TimestampMs
from kafkaesque.records.batch import SEQUENCE_MAX, BatchHeader, read_header
from kafkaesque.records.codec import Record, encode_batch

PRODUCER = ProducerId(7)


def batch(
    sequence: int, count: int = 1, *, epoch: int = 0, base_offset: int = 0, timestamp: int = 1000
) -> BatchHeader:
    records = [Record(Offset(0), TimestampMs(timestamp), None, b"x")] * count
    return read_header(
        encode_batch(
            records,
            base_offset=Offset(base_offset),
            producer_id=PRODUCER,
            producer_epoch=ProducerEpoch(epoch),
            base_sequence=sequence,
        )
    )


@pytest.fixture
def table() -> ProducerTable:
    return ProducerTable(Offset(0))


def fill(table: ProducerTable, count: int) -> None:
    for sequence in range(count):
        table.apply(batch(sequence, base_offset=sequence))


def test_unknown_producer_may_start_at_any_sequence(table: ProducerTable) -> None:
    assert table.judge(batch(41)) is None


def test_next_sequence_is_accepted(table: ProducerTable) -> None:
    table.apply(batch(0, count=3))
    assert table.judge(batch(3)) is None


@pytest.mark.parametrize("sequence", [0, 2, 4])
def test_gap_or_overlap_is_out_of_order(table: ProducerTable, sequence: int) -> None:
    table.apply(batch(0, count=3))
    with pytest.raises(OutOfOrderSequence):
        table.judge(batch(sequence))


@pytest.mark.parametrize("age", range(BATCHES_REMEMBERED))
def test_retry_of_each_of_the_last_five_batches_gets_its_first_offset(
    table: ProducerTable, age: int
) -> None:
    fill(table, 8)
    earlier = table.judge(batch(7 - age))
    assert earlier is not None
    assert earlier.base_offset == 7 - age


def test_retry_older_than_the_window_is_out_of_order(table: ProducerTable) -> None:
    fill(table, 8)
    with pytest.raises(OutOfOrderSequence):
        table.judge(batch(7 - BATCHES_REMEMBERED))


def test_sequence_wraps_to_zero_after_its_maximum(table: ProducerTable) -> None:
    table.apply(batch(SEQUENCE_MAX - 1, count=2))
    assert table.judge(batch(0)) is None


def test_smaller_epoch_is_fenced(table: ProducerTable) -> None:
    table.apply(batch(0, epoch=2))
    with pytest.raises(InvalidProducerEpoch):
        table.judge(batch(1, epoch=1))


def test_new_epoch_starts_at_zero(table: ProducerTable) -> None:
    table.apply(batch(5, epoch=1))
    assert table.judge(batch(0, epoch=2)) is None
    with pytest.raises(OutOfOrderSequence):
        table.judge(batch(6, epoch=2))


def test_new_epoch_forgets_the_batches_of_the_old_one(table: ProducerTable) -> None:
    table.apply(batch(0, epoch=1))
    table.apply(batch(0, epoch=2, base_offset=1))
    earlier = table.judge(batch(0, epoch=2))
    assert earlier is not None
    assert earlier.base_offset == 1


def test_silent_producer_expires_and_an_active_one_stays(table: ProducerTable) -> None:
    table.apply(batch(0, timestamp=1000))
    table.expire(1000, 500)
    table.expire(1500, 500)
    assert len(table) == 1
    table.expire(1501, 500)
    assert len(table) == 0


def test_producer_of_old_records_is_kept_as_long_as_any_other(table: ProducerTable) -> None:
    table.apply(batch(0, timestamp=0))
    table.expire(1_000_000, 500)
    table.apply(batch(1, timestamp=0, base_offset=1))
    table.expire(1_000_600, 500)
    assert len(table) == 1
    table.expire(1_001_101, 500)
    assert len(table) == 0


@pytest.mark.parametrize(
    ("sequence", "epoch", "is_repeated"),
    [
        (5, 1, False),
        (4, 1, True),
        (0, 1, True),
        (7, 1, False),
        (0, 2, False),
        (0, 0, False),
    ],
)
def test_batch_before_the_expected_one_is_a_retry_or_too_late(
    table: ProducerTable, sequence: int, epoch: int, is_repeated: bool
) -> None:
    for number in range(5):
        table.apply(batch(number, epoch=1, base_offset=number))
    assert table.is_repeated(batch(sequence, epoch=epoch)) is is_repeated


def test_first_sequence_after_the_last_is_not_a_retry(table: ProducerTable) -> None:
    table.apply(batch(2**31 - 1, epoch=1))
    assert not table.is_repeated(batch(0, epoch=1))
    assert table.is_repeated(batch(2**31 - 1, epoch=1))


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 4)), max_size=30))
def test_snapshot_and_the_log_after_it_equal_the_whole_log(steps: list[tuple[int, int]]) -> None:
    """A snapshot in the middle of any sequence of appends does not change the result of the fold."""
    whole = ProducerTable(Offset(0))
    headers, sequence, epoch, offset = [], 0, 0, 0
    for bump, count in steps:
        if bump == 0:
            epoch, sequence = epoch + 1, 0
        header = batch(sequence, count, epoch=epoch, base_offset=offset)
        headers.append(header)
        sequence, offset = sequence + count, offset + count
    for header in headers:
        whole.apply(header)
    half = len(headers) // 2
    front = ProducerTable(Offset(0))
    for header in headers[:half]:
        front.apply(header)
    restored = ProducerTable.restore(front.snapshot(), Offset(half), Offset(0))
    assert restored is not None
    for header in headers[half:]:
        restored.apply(header)
    assert restored.snapshot() == whole.snapshot()
