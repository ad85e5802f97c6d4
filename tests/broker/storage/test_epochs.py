"""Leader epochs and the offsets they wrote (LeaderEpochFileCacheTest's cases)."""

from __future__ import annotations

import pytest

from kafkaesque.broker.storage.rules.epochs import NO_EPOCH_START, LeaderEpochs

STARTS = [(2, 0), (5, 10), (6, 10_000)]


@pytest.mark.parametrize(
    ("epoch", "expected"),
    [
        (-1, (-1, -1)),
        (0, (0, 0)),
        (2, (2, 10)),
        (3, (2, 10)),
        (4, (2, 10)),
        (5, (5, 10_000)),
        (6, (6, 20_000)),
        (7, (-1, -1)),
    ],
)
def test_end_of_an_epoch_is_the_start_of_the_next_one(
    epoch: int, expected: tuple[int, int]
) -> None:
    assert LeaderEpochs(STARTS).end_of(epoch, 20_000) == expected


def test_log_without_epochs_knows_no_end() -> None:
    epochs = LeaderEpochs()
    assert epochs.end_of(0, 5) == NO_EPOCH_START
    assert epochs.latest_start == NO_EPOCH_START
    assert epochs.at(3) == -1


@pytest.mark.parametrize(
    ("offset", "epoch"), [(-1, -1), (0, 2), (9, 2), (10, 5), (9999, 5), (10_000, 6), (10**9, 6)]
)
def test_offset_belongs_to_the_last_epoch_that_began_before_it(offset: int, epoch: int) -> None:
    assert LeaderEpochs(STARTS).at(offset) == epoch


def test_older_or_unset_epochs_change_nothing() -> None:
    epochs = LeaderEpochs(STARTS)
    assert [epochs.assign(epoch, 30_000) for epoch in (-1, 3, 6)] == [False, False, False]
    assert epochs.starts() == STARTS


def test_epoch_that_begins_where_another_did_replaces_it() -> None:
    epochs = LeaderEpochs(STARTS)
    assert epochs.assign(8, 10_000)
    assert epochs.starts() == [(2, 0), (5, 10), (8, 10_000)]
    assert (epochs.latest, epochs.latest_start) == (8, (8, 10_000))


def test_has_at_most_one_epoch() -> None:
    epochs = LeaderEpochs()
    assert epochs.has_at_most_one
    epochs.assign(0, 0)
    assert epochs.has_at_most_one
    epochs.assign(1, 5)
    assert not epochs.has_at_most_one


@pytest.mark.parametrize(
    ("offset", "left"),
    [(20_000, STARTS), (10_000, STARTS[:2]), (11, STARTS[:2]), (10, STARTS[:1]), (0, [])],
)
def test_cut_log_drops_epochs_after_the_cut(offset: int, left: list[tuple[int, int]]) -> None:
    epochs = LeaderEpochs(STARTS)
    epochs.drop_from(offset)
    assert epochs.starts() == left
    assert epochs.latest == (left[-1][0] if left else -1)


@pytest.mark.parametrize(
    ("offset", "left"),
    [
        (0, STARTS),
        (5, [(2, 5), (5, 10), (6, 10_000)]),
        (10, STARTS[1:]),
        (11, [(5, 11), (6, 10_000)]),
        (20_000, [(6, 20_000)]),
    ],
)
def test_log_that_starts_later_keeps_the_epoch_of_its_first_offset(
    offset: int, left: list[tuple[int, int]]
) -> None:
    epochs = LeaderEpochs(STARTS)
    epochs.drop_before(offset)
    assert epochs.starts() == left
