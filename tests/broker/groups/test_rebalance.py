"""Corners of a rebalance; the stories are in tests/scripts/groups."""

from __future__ import annotations

from tests.broker.groups.driver import Driver

from kafkaesque.broker.groups.config import GroupConfig
from kafkaesque.broker.groups.transitions import GroupState
from kafkaesque.model.errors import ErrorCode


def test_state_moves_are_stamped_with_wall_time_in_the_record() -> None:
    driver = Driver()
    members, _ = driver.stable_group("a")
    driver.advance(5)
    driver.leave(*members)
    group = driver.registry._groups["g"]
    assert group.state_since_ms == driver.now.wall_ms
    driver.restart()
    assert driver.registry._groups["g"].state_since_ms == group.state_since_ms


def test_member_that_waits_is_not_timed_out() -> None:
    driver = Driver()
    members, generation_id = driver.stable_group("a", "b", session_timeout_ms=60_000)
    token = driver.join(members[0], rebalance_timeout_ms=300_000, session_timeout_ms=6_000)
    for _ in range(5):
        driver.advance(9)
        driver.heartbeat(members[1], generation_id)
    assert token not in driver.answers
    assert members[0] in driver.registry._groups["g"].roster


def test_session_begins_anew_with_the_join_answer() -> None:
    driver = Driver(GroupConfig(initial_rebalance_delay_ms=8000))
    token = driver.join(session_timeout_ms=10_000)
    driver.advance(8)
    member_id = driver.joined(token).member_id
    driver.advance(9)
    assert driver.heartbeat(member_id, 1).error is ErrorCode.NONE  # type: ignore[union-attr]


def test_leader_that_never_syncs_is_dropped_and_followers_rejoin() -> None:
    driver = Driver()
    first = driver.join(client_id="a", rebalance_timeout_ms=20_000, session_timeout_ms=30_000)
    driver.join(client_id="b", rebalance_timeout_ms=20_000, session_timeout_ms=30_000)
    driver.advance(0)
    leader_id = driver.joined(first).member_id
    waiting = driver.sync("b-2", 1)
    driver.advance(19)
    driver.heartbeat(leader_id, 1)
    assert waiting not in driver.answers
    driver.advance(1)
    assert driver.synced(waiting).error is ErrorCode.REBALANCE_IN_PROGRESS
    assert driver.registry._groups["g"].roster.leader_id == "b-2"


def test_group_is_empty_if_its_last_member_leaves_during_the_initial_delay() -> None:
    driver = Driver(GroupConfig())
    driver.join(client_id="a")
    driver.leave("a-1")
    driver.advance(3)
    counts = driver.registry.groups_by_state()
    assert counts[GroupState.EMPTY] == 1
    assert driver.registry._groups["g"].generation_id == 1
    assert driver.registry.next_deadline() is None
