"""What several brokers see, put together."""

from __future__ import annotations

import pytest

from kafkaesque.testing.cluster_view import PartitionSeen, Sight, View

ALL = frozenset({0, 1, 2})


def sight(
    controller: int | None = 0,
    term: int = 1,
    voters: frozenset[int] = ALL,
    up: frozenset[int] = ALL,
    **topics: PartitionSeen,
) -> Sight:
    return Sight(controller, term, voters, up, {name: (seen,) for name, seen in topics.items()})


@pytest.mark.parametrize(
    ("sights", "controller"),
    [
        ([], None),
        ([sight(None), sight(None)], None),
        ([sight(0), sight(1), sight(1)], 1),
        ([sight(0, term=1), sight(0, term=1), sight(2, term=2)], 2),
        ([sight(0, term=1), sight(None, term=2)], None),
    ],
)
def test_controller_is_whom_those_name_who_know_the_latest(
    sights: list[Sight], controller: int | None
) -> None:
    assert View(dict(enumerate(sights))).controller == controller


def test_leader_is_that_of_the_latest_epoch_and_revision() -> None:
    old = PartitionSeen((0, 1, 2), epoch=1, revision=9, leader=0, in_sync=(0, 1, 2))
    new = PartitionSeen((0, 1, 2), epoch=2, revision=0, leader=1, in_sync=(1,))
    newer = PartitionSeen((0, 1, 2), epoch=2, revision=1, leader=1, in_sync=(1, 2))
    view = View({0: sight(t=old), 1: sight(t=newer), 2: sight(t=new)})
    assert (view.leader_of("t", 0), view.in_sync("t", 0)) == (1, (1, 2))
    assert (view.leader_of("t", 1), view.in_sync("u", 0)) == (None, ())
    assert (view.partition_count("t"), view.partition_count("u")) == (1, 0)


@pytest.mark.parametrize(
    ("seen", "is_in_sync"),
    [
        (PartitionSeen((0, 1), 1, 0, 0, (0, 1)), True),
        (PartitionSeen((0, 1), 1, 0, 0, (0,)), False),
        (PartitionSeen((0, 2), 1, 0, 0, (0,)), True),  # broker 2 is down
        (PartitionSeen((0, 2), 1, 0, 2, (0, 2)), False),  # and so is this leader
        (PartitionSeen((0, 1)), False),
    ],
)
def test_replicas_of_brokers_that_are_up_must_be_in_sync(
    seen: PartitionSeen, is_in_sync: bool
) -> None:
    view = View({0: sight(t=seen), 1: sight(t=seen)})
    assert view.is_in_sync("t") is is_in_sync
    assert view.is_in_sync(None) is is_in_sync


@pytest.mark.parametrize(
    ("last", "is_joined"),
    [
        (sight(), True),
        (sight(up=frozenset({1, 2})), False),
        (sight(voters=frozenset({0, 1})), False),
    ],
)
def test_all_must_hear_each_other_and_vote(last: Sight, is_joined: bool) -> None:
    assert View({0: sight(), 1: sight(), 2: last}).is_joined is is_joined
