"""Open and aborted transactions of a partition, as a fold of its log."""

from __future__ import annotations

import pytest

from kafkaesque.broker.partitions.rules.open_transactions import (
    GUARDS_MAX,
    AbortedIndex,
    AbortedTxn,
    OpenTransactions,
)
from kafkaesque.model.ids import Offset, ProducerEpoch, ProducerId

ONE, TWO = ProducerId(1), ProducerId(2)
EPOCH = ProducerEpoch(0)


def offsets(*numbers: int) -> list[Offset]:
    return [Offset(number) for number in numbers]


def test_without_open_transactions_everything_to_the_high_watermark_is_stable() -> None:
    assert OpenTransactions().stable_offset(Offset(9)) == 9


def test_stable_offset_stops_at_the_oldest_open_transaction() -> None:
    table = OpenTransactions()
    table.wrote(ONE, Offset(3))
    table.wrote(TWO, Offset(5))
    table.wrote(ONE, Offset(7))
    assert table.stable_offset(Offset(9)) == 3
    table.ended(ONE, Offset(9), is_commit=True)
    assert table.stable_offset(Offset(10)) == 5


def test_stable_offset_waits_for_the_commit_of_the_marker_itself() -> None:
    """A marker that is not committed yet may be lost with its leader."""
    table = OpenTransactions()
    table.wrote(ONE, Offset(0))
    table.ended(ONE, Offset(1), is_commit=True)
    assert table.stable_offset(Offset(1)) == 0
    assert len(table) == 1
    assert table.stable_offset(Offset(2)) == 2
    assert len(table) == 0


def test_stable_offset_never_passes_the_high_watermark() -> None:
    table = OpenTransactions()
    table.wrote(ONE, Offset(7))
    assert table.stable_offset(Offset(4)) == 4


def test_aborted_transaction_is_listed_for_every_range_that_it_touches() -> None:
    table = OpenTransactions()
    table.wrote(ONE, Offset(2))
    table.ended(ONE, Offset(6), is_commit=False)
    found = [AbortedTxn(ONE, Offset(2))]
    for start, end in ((0, 3), (0, 9), (2, 3), (4, 5), (6, 9)):
        assert table.aborted.between(Offset(start), Offset(end)) == found
    for start, end in ((0, 2), (7, 9)):
        assert table.aborted.between(Offset(start), Offset(end)) == []


def test_committed_transaction_and_marker_without_records_leave_no_trace() -> None:
    table = OpenTransactions()
    table.wrote(ONE, Offset(0))
    table.ended(ONE, Offset(1), is_commit=True)
    table.ended(TWO, Offset(2), is_commit=False)
    assert len(table.aborted) == 0


def test_search_ends_where_no_later_transaction_can_overlap() -> None:
    index = AbortedIndex()
    index.add(ONE, *offsets(0, 5, 2))
    index.add(TWO, *offsets(2, 8, 9))
    index.add(ONE, *offsets(9, 12, 13))
    assert index.between(*offsets(0, 2)) == [AbortedTxn(ONE, Offset(0))]
    assert index.between(*offsets(6, 9)) == [AbortedTxn(TWO, Offset(2))]
    assert [one.first_offset for one in index.between(*offsets(0, 99))] == [0, 2, 9]


def test_aborted_transactions_are_dropped_with_their_records() -> None:
    index = AbortedIndex()
    index.add(ONE, *offsets(0, 5, 6))
    index.add(TWO, *offsets(6, 8, 9))
    index.drop_before(Offset(6))
    assert index.between(*offsets(0, 99)) == [AbortedTxn(TWO, Offset(6))]


@pytest.mark.parametrize("is_commit", [True, False])
def test_marker_revokes_the_guard(is_commit: bool) -> None:
    """A record that is verified before the end and appended after it would belong to no transaction."""
    table = OpenTransactions()
    guard = table.guard(ONE, EPOCH, 0)
    assert table.holds(ONE, guard)
    table.ended(ONE, Offset(0), is_commit=is_commit)
    assert not table.holds(ONE, guard)


def test_guard_is_shared_keeps_the_lowest_sequence_and_ends_with_the_leadership() -> None:
    table = OpenTransactions()
    guard = table.guard(ONE, EPOCH, 5)
    assert table.guard(ONE, EPOCH, 3) is guard
    assert guard.lowest_sequence == 3
    assert table.guard(ONE, ProducerEpoch(1), 0) is not guard
    table.drop_guards()
    assert not table.holds(ONE, guard)


def test_guards_are_bounded_and_the_oldest_is_dropped() -> None:
    table = OpenTransactions()
    guards = [table.guard(ProducerId(number), EPOCH, 0) for number in range(GUARDS_MAX + 1)]
    assert not table.holds(ProducerId(0), guards[0])
    assert table.holds(ProducerId(GUARDS_MAX), guards[-1])


def test_snapshot_restores_everything_folded_from_the_log() -> None:
    table = OpenTransactions()
    table.wrote(ONE, Offset(0))
    table.ended(ONE, Offset(1), is_commit=False)
    table.wrote(TWO, Offset(2))
    restored = OpenTransactions.restore(table.snapshot())
    assert restored.first_offset(TWO) == 2
    assert restored.stable_offset(Offset(1)) == 0
    assert restored.stable_offset(Offset(3)) == 2
    assert restored.aborted.rows() == table.aborted.rows() == [(1, 0, 1, 2)]


def test_guard_of_an_older_epoch_does_not_revoke_that_of_a_newer_one() -> None:
    table = OpenTransactions()
    newer = table.guard(ONE, ProducerEpoch(2), 0)
    late = table.guard(ONE, ProducerEpoch(1), 5)
    assert table.holds(ONE, newer)
    assert not table.holds(ONE, late)
    assert newer.lowest_sequence == 0
