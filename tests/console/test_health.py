"""The health sentence and its level."""

from __future__ import annotations

import pytest

from kafkaesque.console.rules.health import health_of
from kafkaesque.console.rules.lag import GroupStatus
from kafkaesque.console.rules.view import (
    ConsoleBrokerView,
    ConsoleClusterView,
    GroupView,
    PartitionView,
    QuorumView,
    TopicView,
)


def cluster(brokers: int = 3) -> ConsoleClusterView:
    view = ConsoleClusterView(sampled_s=1.0)
    view.brokers = {n: ConsoleBrokerView(n, "localhost", 9092 + n) for n in range(brokers)}
    replicas = tuple(range(brokers))
    partitions = [PartitionView(n, n % brokers, 1, replicas, replicas) for n in range(3)]
    view.topics = {"orders": TopicView("orders", "id", False, partitions)}
    return view


def group(name: str, status: GroupStatus) -> GroupView:
    return GroupView(name, "Stable", "classic", "consumer", 0, 1, status=status)


def test_health_is_unknown_before_the_first_sample() -> None:
    assert health_of(ConsoleClusterView()).level == "unknown"


def test_a_healthy_cluster() -> None:
    view = cluster()
    view.groups = {"billing": group("billing", GroupStatus.OK)}
    health = health_of(view)
    assert health.level == "good"
    assert health.sentence == (
        "All 3 brokers are up; each of 3 partitions has a leader and all replicas in sync; "
        "1 consumer group keeps up."
    )


def test_a_cluster_that_does_not_answer_is_bad() -> None:
    view = cluster()
    view.error = "127.0.0.1:9092: refused"
    assert health_of(view).level == "bad"
    assert "refused" in health_of(view).sentence


def test_a_broker_down_is_a_warning_and_a_partition_without_a_leader_is_bad() -> None:
    view = cluster()
    view.brokers[2].is_up = False
    view.topics["orders"].partitions[0].isr = (0, 1)
    health = health_of(view)
    assert health.level == "warn"
    assert health.sentence.startswith("Broker 2 is down; 1 partition under-replicated in orders")
    view.topics["orders"].partitions[1].leader = -1
    health = health_of(view)
    assert health.level == "bad"
    assert health.sentence == "1 partition without a leader in orders (2 minor findings)."


@pytest.mark.parametrize(
    ("statuses", "words"),
    [
        ({"a": GroupStatus.STOPPED}, "Group a has no members, but unread records."),
        ({"a": GroupStatus.SLOW, "b": GroupStatus.SLOW}, "2 groups are slow (a, b)."),
        (
            dict.fromkeys("abcde", GroupStatus.STALLED),
            "5 groups are stalled (a, b, c and 2 more).",
        ),
    ],
)
def test_unhealthy_groups_are_named(statuses: dict[str, GroupStatus], words: str) -> None:
    view = cluster()
    view.groups = {name: group(name, status) for name, status in statuses.items()}
    assert health_of(view).sentence == words


def test_a_full_disk_and_a_quorum_without_leader_are_findings() -> None:
    view = cluster()
    view.brokers[0].disk_total_bytes, view.brokers[0].disk_free_bytes = 1000, 50
    view.quorum = QuorumView(-1, 4, 10, [])
    texts = [finding.text for finding in health_of(view).findings]
    assert texts == [
        "the controller quorum has no leader",
        "the disk of broker 0 has only 5% free space",
    ]
