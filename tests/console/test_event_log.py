"""The event log: changes between two samples of a cluster."""

from __future__ import annotations

import copy

from tests.console.test_health import cluster

from kafkaesque.console.rules.event_log import EVENTS_MAX, ClusterChange, EventLog, changes_between
from kafkaesque.console.rules.lag import GroupStatus
from kafkaesque.console.rules.view import ConsoleClusterView, GroupView, QuorumView


def texts(before: ConsoleClusterView, after: ConsoleClusterView) -> list[str]:
    return [change.text for change in changes_between(before, after)]


def test_the_first_sample_has_no_changes() -> None:
    assert changes_between(ConsoleClusterView(), cluster()) == []


def test_equal_samples_have_no_changes() -> None:
    assert changes_between(cluster(), cluster()) == []


def test_a_broker_that_goes_down_causes_elections() -> None:
    before, after = cluster(), cluster()
    after.brokers[2].is_up = False
    after.topics["orders"].partitions[2].leader = 0
    after.topics["orders"].partitions[2].epoch = 2
    after.topics["orders"].partitions[2].isr = (0, 1)
    assert texts(before, after) == [
        "broker 2 is down",
        "broker 0 leads orders-2 in term 2",
        "1 of 3 partitions of orders became under-replicated",
    ]
    assert texts(after, before)[0] == "broker 2 is back at localhost:9094"


def test_changes_of_topics_settings_groups_and_the_controller() -> None:
    before, after = cluster(), cluster()
    before.quorum, after.quorum = QuorumView(0, 1, 5, []), QuorumView(1, 2, 9, [])
    before.topics["orders"].retention_ms, after.topics["orders"].retention_ms = 1000, 2000
    after.topics["new"] = copy.deepcopy(after.topics["orders"])
    after.topics["new"].name = "new"
    before.groups["billing"] = GroupView("billing", "Stable", "classic", "consumer", 0, 2)
    after.groups["billing"] = GroupView(
        "billing", "Stable", "classic", "consumer", 0, 1, status=GroupStatus.STALLED
    )
    after.groups["audit"] = GroupView("audit", "Stable", "classic", "consumer", 0, 1)
    assert sorted(texts(before, after)) == sorted([
        "broker 1 leads the controller quorum in term 2 (was broker 0, term 1)",
        "retention.ms of orders is 2000 (was 1000)",
        "topic new was created with 3 partitions",
        "group billing shrank from 2 to 1 members",
        "group billing has members, but they do not commit",
        "group audit appeared",
    ])  # fmt: skip


def test_many_changes_of_one_kind_are_summed_up() -> None:
    before, after = cluster(), cluster()
    after.groups = {
        f"g{n}": GroupView(f"g{n}", "Empty", "classic", "consumer", 0) for n in range(1000)
    }
    changes = changes_between(before, after)
    assert len(changes) == 5
    assert changes[-1].text == "and 996 more group changes at once"


def test_the_log_is_bounded_numbered_and_filtered() -> None:
    log = EventLog()
    log.add(1.0, [ClusterChange("topic", "info", str(n)) for n in range(EVENTS_MAX + 10)])
    log.add(2.0, [ClusterChange("broker", "bad", "gone")])
    assert len(log) == EVENTS_MAX
    assert log.newest(1)[0].number == EVENTS_MAX + 11
    assert [event.change.text for event in log.newest(5, frozenset({"broker"}))] == ["gone"]
    assert [event.change.text for event in log.since(1.5, frozenset({"broker"}))] == ["gone"]
