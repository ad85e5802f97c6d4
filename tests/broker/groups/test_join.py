"""Corners of JoinGroup; the stories are in tests/scripts/groups."""

from __future__ import annotations

import pytest
from tests.broker.groups.consumer_protocol import subscription
from tests.broker.groups.driver import Driver

from kafkaesque.broker.groups.config import GroupConfig
from kafkaesque.broker.groups.membership import unique_by_name
from kafkaesque.broker.groups.types import HeartbeatAnswer, Protocol
from kafkaesque.model.errors import ErrorCode


def test_first_of_each_protocol_name_counts() -> None:
    first, second = Protocol("a", b"1"), Protocol("b", b"2")
    assert unique_by_name((first, second, Protocol("a", b"3"))) == (first, second)


def test_member_id_is_client_or_instance_id_with_a_suffix() -> None:
    driver = Driver()
    dynamic = driver.join(client_id="me", api_version=4)
    assert driver.joined(dynamic).member_id == "me-1"
    static = driver.join(client_id="me", group_instance_id="rack-1")
    driver.advance(0)
    driver.leave("me-1")
    driver.advance(60)
    assert driver.joined(static).member_id == "rack-1-2"


def test_endless_client_id_still_gives_an_id_that_the_log_can_hold() -> None:
    driver = Driver()
    token = driver.join(client_id="é" * 16_000)
    driver.advance(0)
    member_id = driver.joined(token).member_id
    assert len(member_id.encode()) < 32_767
    driver.sync(member_id, 1)
    assert driver.registry.member_count() == 1


@pytest.mark.parametrize(
    "field", ["client_id", "client_host", "protocol_type", "group_instance_id"]
)
def test_text_that_the_log_cannot_hold_is_an_invalid_request(field: str) -> None:
    driver = Driver()
    token = driver.join(**{field: "x" * 32_768})
    assert driver.joined(token).error is ErrorCode.INVALID_REQUEST
    assert list(driver.registry.group_ids()) == []


def test_promised_ids_of_a_group_are_limited() -> None:
    driver = Driver(GroupConfig(pending_members_max=2))
    tokens = [driver.join(api_version=4) for _ in range(3)]
    assert [driver.joined(token).error for token in tokens] == [
        ErrorCode.MEMBER_ID_REQUIRED,
        ErrorCode.MEMBER_ID_REQUIRED,
        ErrorCode.GROUP_MAX_SIZE_REACHED,
    ]


def test_promised_id_does_not_become_a_static_member() -> None:
    driver = Driver()
    member_id = driver.joined(driver.join(api_version=5)).member_id
    token = driver.join(member_id, group_instance_id="i")
    assert driver.joined(token).error is ErrorCode.UNKNOWN_SERVER_ERROR


def test_rebalance_timeout_of_version_0_is_the_session_timeout() -> None:
    driver = Driver()
    members, generation_id = driver.stable_group("a", "b", rebalance_timeout_ms=-1)
    token = driver.join(members[0], rebalance_timeout_ms=-1)
    driver.advance(9.9)
    assert token not in driver.answers
    driver.heartbeat(members[1], generation_id)
    driver.advance(0.1)
    assert driver.joined(token).generation_id == generation_id + 1


def test_absent_static_member_without_rebalance_timeout_does_not_make_the_clock_spin() -> None:
    driver = Driver()
    driver.join(group_instance_id="i", rebalance_timeout_ms=-7)
    driver.join(client_id="b", rebalance_timeout_ms=60_000)
    driver.advance(0)
    driver.sync("i-1", 1, i_1=b"x", b_2=b"y")
    driver.sync("b-2", 1)
    driver.leave("b-2")
    ticks = driver.advance(60)
    assert 1 < len(ticks) < 100


def test_follower_that_rejoins_during_the_sync_phase_gets_the_generation_again() -> None:
    driver = Driver()
    driver.join(client_id="a")
    driver.join(client_id="b")
    driver.advance(0)
    again = driver.joined(driver.join("b-2"))
    assert (again.generation_id, again.members, again.leader) == (1, (), "a-1")
    leader = driver.joined(driver.join("a-1"))
    assert [member.member_id for member in leader.members] == ["a-1", "b-2"]


def test_follower_with_news_while_assigning_begins_a_new_rebalance() -> None:
    driver = Driver()
    driver.join(client_id="a")
    driver.join(client_id="b")
    driver.advance(0)
    waiting = driver.sync("b-2", 1)
    driver.join("b-2", protocols=(Protocol("range", b"news"),))
    assert driver.synced(waiting).error is ErrorCode.REBALANCE_IN_PROGRESS


def test_member_of_a_group_that_became_empty_is_unknown() -> None:
    driver = Driver()
    members, _ = driver.stable_group("a")
    driver.leave(*members)
    assert driver.joined(driver.join(members[0])).error is ErrorCode.UNKNOWN_MEMBER_ID


def test_static_member_replaced_before_its_sync_is_not_dropped_for_missing_it() -> None:
    driver = Driver()
    driver.join(client_id="a")
    driver.join(group_instance_id="i", api_version=9)
    driver.advance(0)
    driver.sync("a-1", 1, a_1=b"x", i_2=b"y")
    replaced = driver.joined(driver.join(group_instance_id="i", api_version=9))
    assert (replaced.member_id, replaced.generation_id) == ("i-3", 1)
    driver.sync("i-3", 1)
    for _ in range(8):
        driver.advance(9)
        for member_id in ("a-1", "i-3"):
            assert driver.heartbeat(member_id, 1) == HeartbeatAnswer()


def test_replaced_static_member_leaves_no_timer() -> None:
    driver = Driver()
    driver.stable_group("a", group_instance_id="i")
    driver.join(group_instance_id="i")
    driver.leave("i-2")
    assert driver.registry.next_deadline() is None


def test_replacement_of_a_static_member_may_subscribe_to_other_topics() -> None:
    driver = Driver()
    before = (Protocol("range", subscription(["old"], {})),)
    driver.stable_group("a", group_instance_id="i", protocols=before)
    after = (Protocol("range", subscription(["new"], {})),)
    driver.join(group_instance_id="i", protocols=after)
    assert driver.registry._groups["g"].subscribed == {"new"}
    driver.restart()
    assert driver.registry._groups["g"].subscribed == {"new"}
