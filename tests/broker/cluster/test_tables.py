"""The tables after replaying commands."""

from __future__ import annotations

from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkaesque.broker.cluster.rules import commands
from kafkaesque.broker.cluster.rules.tables import Tables, folded_name
from kafkaesque.model.errors import CorruptMessage, InvariantBroken
from kafkaesque.model.ids import FIRST_PARTITION_GROUP, GroupId, NodeId, TopicId, member_id

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


def test_deleted_topic_leaves_nothing() -> None:
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
    commands.RegisterBroker(1, ID, "host", 9092),
    commands.RegisterBroker(1, ID, "host", 9092, "rack", 5),
    commands.UnregisterBroker(1),
    commands.SetReassignments(
        (commands.Reassignment(ID, 0, (1, 2)), commands.Reassignment(ID, 1, None))
    ),
    commands.CompleteReassignment(ID, 0, (1, 2)),
]


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: type(command).__name__)
def test_command_survives_its_bytes(command: commands.Command) -> None:
    assert commands.decode_command(commands.encode_command(command)) == command


# -- brokers ----------------------------------------------------------------------------------------


def registered(node: int, disk: int = 1, incarnation: int = 0) -> commands.RegisterBroker:
    return commands.RegisterBroker(
        node, UUID(int=node * 100 + disk), f"host{node}", 9092, None, incarnation
    )


def test_each_other_disk_is_a_generation_and_each_registration_an_epoch() -> None:
    tables = replay(registered(1), registered(2), registered(1, incarnation=1))
    assert [(b.node_id, b.generation, b.epoch) for b in tables.brokers.values()] == [
        (1, 0, 3),
        (2, 0, 2),
    ]
    tables.apply(registered(1, disk=2))
    assert tables.brokers[NodeId(1)].member_id == member_id(NodeId(1), 1)
    tables.apply(registered(1, disk=1))
    assert tables.brokers[NodeId(1)].generation == 2


def test_broker_that_returns_with_another_disk_is_a_new_member() -> None:
    tables = replay(registered(1), commands.UnregisterBroker(1))
    assert tables.brokers == {}
    tables.apply(registered(1))
    assert tables.brokers[NodeId(1)].generation == 0
    tables.apply(commands.UnregisterBroker(1))
    tables.apply(registered(1, disk=2))
    assert tables.brokers[NodeId(1)].generation == 1


# -- groups -----------------------------------------------------------------------------------------


def test_every_partition_is_a_group_with_an_id_that_is_never_reused() -> None:
    tables = replay(
        commands.CreateTopic("a", ID, ((1,), (1,))),
        commands.DeleteTopic(ID),
        commands.CreateTopic("b", UUID(int=8), ((1,),)),
        commands.AddPartitions(UUID(int=8), ((1,),)),
    )
    first = FIRST_PARTITION_GROUP
    assert [item.group_id for item in tables.by_name["b"].partitions] == [first + 2, first + 3]
    assert tables.by_group == {first + 2: (UUID(int=8), 0), first + 3: (UUID(int=8), 1)}
    assert tables.next_group_id == first + 4
    assert tables.was_deleted(GroupId(first + 1))
    assert not tables.was_deleted(GroupId(first + 2))
    assert not tables.was_deleted(GroupId(first + 4))
    assert not tables.was_deleted(GroupId(0))


def test_group_begins_with_the_members_that_its_nodes_are_at_that_time() -> None:
    tables = replay(
        registered(1),
        registered(2),
        registered(2, disk=2),
        commands.CreateTopic("a", ID, ((2, 1, 3),)),
        registered(1, disk=2),
    )
    (assignment,) = tables.by_name["a"].partitions
    now = tables.members(assignment.replicas)
    assert assignment.initial_members == (member_id(NodeId(2), 1), 1, 3)
    assert now == (member_id(NodeId(2), 1), member_id(NodeId(1), 1), 3)
    assert tables.assignment_of(assignment.group_id) == assignment
    assert tables.assignment_of(GroupId(99)) is None


# -- reassignment -----------------------------------------------------------------------------------


def moving(*targets: tuple[int, ...] | None) -> Tables:
    changes = (
        commands.SetReassignments((commands.Reassignment(ID, 0, target),)) for target in targets
    )
    return replay(commands.CreateTopic("a", ID, ((1, 2, 3), (1,))), *changes)


def test_partition_on_its_way_is_on_old_and_new_nodes() -> None:
    topic = moving((5, 2, 4)).by_name["a"]
    assignment = topic.partitions[0]
    assert (assignment.replicas, assignment.target) == ((1, 2, 3), (5, 2, 4))
    assert (assignment.adding, assignment.removing) == ((4, 5), (1, 3))
    assert topic.replicas == ((5, 2, 4, 1, 3), (1,))
    assert topic.replication_factor == 3


def test_completed_move_leaves_the_new_nodes_only() -> None:
    tables = moving((5, 2))
    tables.apply(commands.CompleteReassignment(ID, 0, (5, 2)))
    (assignment, _) = tables.by_name["a"].partitions
    assert (assignment.replicas, assignment.target) == ((5, 2), None)
    assert (assignment.adding, assignment.removing, assignment.wanted) == ((), (), (5, 2))


def test_cancelled_move_leaves_the_old_nodes() -> None:
    (assignment, _) = moving((5, 2, 4), None).by_name["a"].partitions
    assert (assignment.replicas, assignment.target) == ((1, 2, 3), None)


def test_other_order_of_the_same_nodes_holds_at_once() -> None:
    for tables in (moving((3, 1, 2)), moving((4, 5, 6), (3, 1, 2))):
        (assignment, _) = tables.by_name["a"].partitions
        assert (assignment.replicas, assignment.target) == ((3, 1, 2), None)


def test_completing_another_move_than_is_under_way_stops_the_node() -> None:
    with pytest.raises(InvariantBroken):
        moving((5, 2)).apply(commands.CompleteReassignment(ID, 0, (2, 5)))


# -- snapshots --------------------------------------------------------------------------------------

NODE_IDS = st.integers(1, 5)
REPLICAS = st.lists(NODE_IDS, min_size=1, max_size=3, unique=True).map(tuple)
NAMES = st.sampled_from(["a", "b.c", "d"])
STEPS = st.one_of(
    st.builds(registered, NODE_IDS, st.integers(1, 3), st.integers(0, 2)),
    st.builds(commands.UnregisterBroker, NODE_IDS),
    st.builds(
        commands.CreateTopic,
        NAMES,
        st.uuids(),
        st.lists(REPLICAS, min_size=1, max_size=3).map(tuple),
        st.dictionaries(NAMES, NAMES, max_size=1),
    ),
    st.tuples(st.just("delete"), NAMES),
    st.tuples(st.just("move"), NAMES, st.none() | REPLICAS),
    st.builds(commands.SetBrokerConfigs, st.none() | NODE_IDS, st.just({"x": "y"})),
    st.just("producers"),
)


def apply_if_possible(tables: Tables, step: object) -> None:
    match step:
        case commands.CreateTopic(name=name) if name in tables.by_name:
            return
        case commands.UnregisterBroker(node_id=node_id) if node_id not in tables.brokers:
            return
        case ("delete", name) if name in tables.by_name:
            tables.apply(commands.DeleteTopic(tables.by_name[name].topic_id))
        case ("move", name, target) if name in tables.by_name:
            change = commands.Reassignment(tables.by_name[name].topic_id, 0, target)
            tables.apply(commands.SetReassignments((change,)))
        case "producers":
            tables.apply(commands.ReserveProducerIds(tables.next_producer_id + 10))
        case str() | tuple():
            return
        case _:
            tables.apply(step)  # type: ignore[arg-type]


@settings(deadline=None, max_examples=100)
@given(st.lists(STEPS, max_size=15), st.lists(STEPS, max_size=3))
def test_restored_tables_are_equal_and_go_on_alike(
    before: list[object], after: list[object]
) -> None:
    original = Tables()
    for step in before:
        apply_if_possible(original, step)
    restored = replay(commands.CreateTopic("other", ID, ((9,),)))
    restored.restore(original.snapshot())
    assert restored == original
    assert list(restored.by_name) == list(original.by_name)
    for step in after:
        apply_if_possible(original, step)
        apply_if_possible(restored, step)
    assert restored == original


def test_snapshot_of_a_later_version_or_without_content_is_rejected_and_changes_nothing() -> None:
    tables = replay(commands.CreateTopic("a", ID, ((1,),)))
    future = tables.snapshot().replace(b"\xa7version\x01", b"\xa7version\x02")
    for data in (future, b"", b"\x80"):
        with pytest.raises(CorruptMessage):
            tables.restore(data)
    assert tables == replay(commands.CreateTopic("a", ID, ((1,),)))


def test_draft_takes_new_topics_and_the_original_does_not() -> None:
    tables = replay(registered(1))
    draft = tables.draft()
    draft.apply(commands.CreateTopic("a", ID, ((1,),)))
    assert tables == replay(registered(1))
