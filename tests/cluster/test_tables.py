"""The tables after replaying commands."""

from __future__ import annotations

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkaesque.cluster import commands
from kafkaesque.cluster.tables import Tables, folded_name
from kafkaesque.model.errors import InvariantBroken
from kafkaesque.model.ids import NodeId, TopicId

ID = UUID(int=7)


def replay(*applied: commands.Command) -> Tables:
    tables = Tables()
    for command in applied:
        tables.apply(command)
    return tables


def test_created_topic_is_found_by_each_of_its_handles() -> None:
    tables = replay(commands.CreateTopic("a.b", ID, ((1,), (1,)), {"retention.ms": "5"}))
    topic = tables.by_name["a.b"]
    assert tables.by_id[TopicId(ID)] is topic
    assert tables.by_folded_name["a_b"] is topic
    assert (topic.partition_count, tables.partition_count) == (2, 2)
    assert topic.configs == {"retention.ms": "5"}
    assert not topic.is_internal


def test_deleted_topic_leaves_nothing_behind() -> None:
    tables = replay(commands.CreateTopic("a", ID, ((1,),)), commands.DeleteTopic(ID))
    assert [tables.by_name, tables.by_id, tables.by_folded_name] == [{}, {}, {}]
    assert tables.partition_count == 0


def test_name_of_a_deleted_topic_may_come_back_with_another_id() -> None:
    other = UUID(int=8)
    tables = replay(
        commands.CreateTopic("a", ID, ((1,),)),
        commands.DeleteTopic(ID),
        commands.CreateTopic("a", other, ((1,),)),
    )
    assert list(tables.by_id) == [other]


def test_added_partitions_follow_those_that_are_there() -> None:
    tables = replay(
        commands.CreateTopic("a", ID, ((1,),)), commands.AddPartitions(ID, ((2,), (3,)))
    )
    assert tables.by_name["a"].replicas == ((1,), (2,), (3,))
    assert tables.partition_count == 3


def test_set_configs_replace_all_that_were_set() -> None:
    tables = replay(
        commands.CreateTopic("a", ID, ((1,),), {"retention.ms": "5"}),
        commands.SetTopicConfigs(ID, {"segment.ms": "6"}),
        commands.SetBrokerConfigs(None, {"log.retention.ms": "7"}),
        commands.SetBrokerConfigs(1, {"log.retention.ms": "8"}),
    )
    assert tables.by_name["a"].configs == {"segment.ms": "6"}
    assert tables.broker_configs[None] == {"log.retention.ms": "7"}
    assert tables.broker_configs[NodeId(1)] == {"log.retention.ms": "8"}


def test_topics_that_hold_the_clusters_own_state_are_internal() -> None:
    tables = replay(commands.CreateTopic("__consumer_offsets", ID, ((1,),)))
    assert tables.by_name["__consumer_offsets"].is_internal


def test_impossible_commands_stop_the_node() -> None:
    created = commands.CreateTopic("a", ID, ((1,),))
    with pytest.raises(InvariantBroken):
        replay(created, created)
    with pytest.raises(InvariantBroken):
        replay(commands.ReserveProducerIds(5), commands.ReserveProducerIds(5))


@given(st.text(alphabet="ab._-", min_size=1))
def test_folded_names_are_equal_only_for_names_that_collide(name: str) -> None:
    assert folded_name(name) == folded_name(folded_name(name))
    assert "." not in folded_name(name)


COMMANDS = [
    commands.CreateTopic("a", ID, ((1, 2), (2, 1)), {"retention.ms": "5"}),
    commands.DeleteTopic(ID),
    commands.AddPartitions(ID, ((1,),)),
    commands.SetTopicConfigs(ID, {}),
    commands.SetBrokerConfigs(None, {"log.retention.ms": "7"}),
    commands.SetBrokerConfigs(3, {}),
    commands.ReserveProducerIds(1000),
]


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: type(command).__name__)
def test_command_survives_its_bytes(command: commands.Command) -> None:
    assert commands.decode_command(commands.encode_command(command)) == command
