"""The combined view of several brokers."""

from __future__ import annotations

import pytest

from kafkaesque.testing.cluster_view import BrokerReport, ClusterReport, PartitionReport

ALL = frozenset({0, 1, 2})


def view(
    controller: int | None = 0,
    term: int = 1,
    voters: frozenset[int] = ALL,
    up: frozenset[int] = ALL,
    **topics: PartitionReport,
) -> BrokerReport:
    return BrokerReport(
        controller, term, voters, up, {name: (seen,) for name, seen in topics.items()}
    )


@pytest.mark.parametrize(
    ("views", "controller"),
    [
        ([], None),
        ([view(None), view(None)], None),
        ([view(0), view(1), view(1)], 1),
        ([view(0, term=1), view(0, term=1), view(2, term=2)], 2),
        ([view(0, term=1), view(None, term=2)], None),
    ],
)
def test_controller_is_named_by_the_brokers_with_the_highest_term(
    views: list[BrokerReport], controller: int | None
) -> None:
    assert ClusterReport(dict(enumerate(views))).controller == controller


def test_leader_is_that_of_the_latest_epoch_and_revision() -> None:
    old = PartitionReport((0, 1, 2), epoch=1, revision=9, leader=0, in_sync=(0, 1, 2))
    new = PartitionReport((0, 1, 2), epoch=2, revision=0, leader=1, in_sync=(1,))
    newer = PartitionReport((0, 1, 2), epoch=2, revision=1, leader=1, in_sync=(1, 2))
    cluster = ClusterReport({0: view(t=old), 1: view(t=newer), 2: view(t=new)})
    assert (cluster.leader_of("t", 0), cluster.in_sync("t", 0)) == (1, (1, 2))
    assert (cluster.leader_of("t", 1), cluster.in_sync("u", 0)) == (None, ())
    assert (cluster.partition_count("t"), cluster.partition_count("u")) == (1, 0)


@pytest.mark.parametrize(
    ("seen", "is_in_sync"),
    [
        (PartitionReport((0, 1), 1, 0, 0, (0, 1)), True),
        (PartitionReport((0, 1), 1, 0, 0, (0,)), False),
        (PartitionReport((0, 2), 1, 0, 0, (0,)), True),  # broker 2 is down
        (PartitionReport((0, 2), 1, 0, 2, (0, 2)), False),  # and so is this leader
        (PartitionReport((0, 1)), False),
    ],
)
def test_replicas_on_running_brokers_must_be_in_sync(
    seen: PartitionReport, is_in_sync: bool
) -> None:
    cluster = ClusterReport({0: view(t=seen), 1: view(t=seen)})
    assert cluster.is_in_sync("t") is is_in_sync
    assert cluster.is_in_sync(None) is is_in_sync


@pytest.mark.parametrize(
    ("last", "is_joined"),
    [
        (view(), True),
        (view(up=frozenset({1, 2})), False),
        (view(voters=frozenset({0, 1})), False),
    ],
)
def test_joined_means_all_are_connected_and_vote(last: BrokerReport, is_joined: bool) -> None:
    assert ClusterReport({0: view(), 1: view(), 2: last}).is_joined is is_joined
