"""The registry as a whole. Scenarios of single groups are in tests/scripts/groups."""

from __future__ import annotations

import pytest
from tests.broker.groups.driver import Driver
from tests.broker.groups.test_log_format import KAFKA

from kafkaesque.broker.groups.config import GroupConfig
from kafkaesque.broker.groups.registry import GroupRegistry
from kafkaesque.broker.groups.transitions import GroupState
from kafkaesque.broker.groups.types import HeartbeatAnswer, MemberHeartbeat, SyncRequest
from kafkaesque.model.errors import CorruptMessage, ErrorCode, InvariantBroken
from kafkaesque.model.ids import PartitionIndex


def test_records_of_a_real_kafka_are_replayed() -> None:
    driver = Driver()
    registry = GroupRegistry(GroupConfig(), lambda: "id")
    for version in range(5):
        registry.replay(KAFKA["group_key_2"], KAFKA[f"group_value_{version}"])
        registry.replay(KAFKA["offset_key_1"], KAFKA[f"offset_value_{version}"])
    registry.replay(b"\0\3whatever", b"of KIP-848")
    registry.loaded(driver.now)
    (group,) = registry.describe_groups(["grüppe"], 6)
    assert (group.state, [member.member_id for member in group.members]) == (
        "Stable",
        ["c-1", "i-2"],
    )
    assert registry.committed_offsets("grüppe")["orders"][PartitionIndex(7)].offset == 123456789012
    registry.replay(KAFKA["offset_key_0"], None)
    assert registry.offset_count() == 0


def test_group_tombstone_while_loading_removes_the_group() -> None:
    driver = Driver()
    registry = GroupRegistry(GroupConfig(), lambda: "id")
    registry.replay(KAFKA["group_key_2"], KAFKA["group_value_3"])
    registry.replay(KAFKA["group_key_2"], None)
    registry.loaded(driver.now)
    assert list(registry.group_ids()) == []


def test_registry_is_loaded_once() -> None:
    driver = Driver()
    with pytest.raises(InvariantBroken):
        driver.registry.loaded(driver.now)


def test_damaged_record_raises_corrupt_message() -> None:
    with pytest.raises(CorruptMessage):
        GroupRegistry(GroupConfig(), lambda: "id").replay(KAFKA["group_key_2"], b"\0\3\0")


def test_group_record_that_commits_after_the_next_rebalance_began_changes_nothing() -> None:
    driver = Driver()
    driver.join(client_id="a")
    driver.advance(0)
    token = driver.new_token()
    request = SyncRequest(group_id="g", generation_id=1, member_id="a-1")
    effects = driver.registry.sync(request, token, driver.now)
    driver.join(client_id="b")
    driver.finish(effects)
    counts = driver.registry.groups_by_state()
    assert counts[GroupState.PREPARING_REBALANCE] == 1


def test_rejected_first_join_creates_no_group() -> None:
    driver = Driver()
    token = driver.join(protocols=())
    assert driver.joined(token).error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert driver.log == []
    assert list(driver.registry.group_ids()) == []


def test_counts_match_the_groups() -> None:
    driver = Driver()
    members, generation_id = driver.stable_group("a", "b")
    driver.commit("t", 1, member_id=members[0], generation_id=generation_id)
    driver.commit("t", 1, group_id="simple")
    counts = driver.registry.groups_by_state()
    assert counts == {
        GroupState.EMPTY: 1,
        GroupState.PREPARING_REBALANCE: 0,
        GroupState.COMPLETING_REBALANCE: 0,
        GroupState.STABLE: 1,
        GroupState.DEAD: 0,
    }
    assert driver.registry.member_count() == 2
    assert driver.registry.offset_count() == 2
    assert driver.registry.waiting_count() == 0
    driver.join(client_id="c")
    assert driver.registry.waiting_count() == 1
    driver.registry.cancel(driver.new_token() - 1)
    assert driver.registry.waiting_count() == 0


def test_tick_before_any_deadline_does_nothing() -> None:
    driver = Driver()
    driver.stable_group("a")
    deadline = driver.registry.next_deadline()
    assert driver.registry.tick(driver.now).answers == ()
    assert driver.registry.next_deadline() == deadline


def test_heartbeats_of_many_groups_do_not_grow_the_heap() -> None:
    driver = Driver()
    groups = {f"g{number}": driver.join(group_id=f"g{number}") for number in range(300)}
    driver.advance(0)
    before = len(driver.registry._timers._heap)
    for _ in range(20):
        driver.seconds += 3
        for group_id, token in groups.items():
            member_id = driver.joined(token).member_id
            request = MemberHeartbeat(group_id=group_id, generation_id=1, member_id=member_id)
            (answer,) = driver.registry.heartbeat(request, 0, driver.now).answers
            assert answer.value == HeartbeatAnswer()
    assert len(driver.registry._timers._heap) <= before
    assert driver.registry.next_deadline() == 60.0


def test_deleting_a_group_removes_its_pending_member_ids() -> None:
    driver = Driver()
    driver.join(api_version=4)
    driver.finish(driver.registry.delete_groups(("g",), driver.new_token(), driver.now))
    assert driver.registry.next_deadline() is None
