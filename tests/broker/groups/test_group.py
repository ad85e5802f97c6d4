from __future__ import annotations

from dataclasses import replace

import pytest
from tests.broker.groups.consumer_protocol import subscription
from tests.broker.groups.test_log_format import EMPTY, GROUP

from kafkaesque.broker.groups.group import Group
from kafkaesque.broker.groups.log_format import GroupKey, GroupValue, decode_group
from kafkaesque.broker.groups.transitions import GroupState
from kafkaesque.broker.groups.types import Protocol
from kafkaesque.model.errors import CorruptMessage
from kafkaesque.model.ids import NO_TIMESTAMP, TimestampMs

KEY = GroupKey("g")


def test_group_restored_from_its_record_writes_the_same_record() -> None:
    group = Group.from_record(KEY, GROUP)
    assert group.state is GroupState.STABLE
    assert group.roster.leader_id == "c-1"
    assert decode_group(group.as_record().value or b"") == GROUP


def test_record_without_members_restores_an_empty_group() -> None:
    group = Group.from_record(KEY, replace(EMPTY, protocol_type="consumer", generation_id=9))
    assert (group.state, group.generation_id) == (GroupState.EMPTY, 9)
    assert group.subscribed == frozenset()


def test_old_record_without_rebalance_timeout_takes_the_session_timeout() -> None:
    member = replace(GROUP.members[0], rebalance_timeout_ms=-1)
    group = Group.from_record(KEY, replace(GROUP, members=(member,)))
    assert group.roster.rebalance_timeout_ms == member.session_timeout_ms


def test_old_record_without_time_leaves_it_unknown() -> None:
    group = Group.from_record(KEY, replace(EMPTY, state_since_ms=NO_TIMESTAMP))
    assert group.state_since_ms is None


@pytest.mark.parametrize(
    "value",
    [
        replace(GROUP, protocol_name=None),
        replace(GROUP, protocol_type=""),
        replace(GROUP, members=GROUP.members[:1] * 2),
        replace(GROUP, members=(GROUP.members[1], replace(GROUP.members[1], member_id="x"))),
    ],
    ids=["no protocol", "no type", "a member twice", "a name twice"],
)
def test_record_that_no_group_can_have_is_corrupt(value: GroupValue) -> None:
    with pytest.raises(CorruptMessage):
        Group.from_record(KEY, value)


@pytest.mark.parametrize(
    ("protocol_type", "names", "supported"),
    [
        ("consumer", ["range"], True),
        ("consumer", ["odd", "range"], True),
        ("consumer", ["odd"], False),
        ("consumer", [], False),
        ("connect", ["range"], False),
    ],
)
def test_joiner_needs_something_in_common(
    protocol_type: str, names: list[str], supported: bool
) -> None:
    group = Group.from_record(KEY, GROUP)
    protocols = tuple(Protocol(name, b"") for name in names)
    assert group.supports(protocol_type, protocols) is supported


def test_empty_group_takes_any_protocol_but_not_none() -> None:
    group = Group("g", TimestampMs(0))
    assert group.supports("anything", (Protocol("x", b""),))
    assert not group.supports("", (Protocol("x", b""),))
    assert not group.supports("anything", ())


def test_subscribed_topics_are_those_of_all_members() -> None:
    first, second = GROUP.members
    members = (
        replace(first, subscription=subscription(["a"], {})),
        replace(second, subscription=subscription(["b"], {})),
    )
    group = Group.from_record(KEY, replace(GROUP, members=members))
    assert [group.subscribes_to(topic) for topic in "abc"] == [True, True, False]


def test_unreadable_subscription_means_every_topic() -> None:
    assert Group.from_record(KEY, GROUP).subscribes_to("any")
    assert not Group.from_record(KEY, replace(GROUP, protocol_type="connect")).subscribes_to("any")
