"""Operations of the controller: the commands they return, the errors, and that they change no table."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from uuid import UUID

import pytest

from kafkaesque.broker.cluster.rules import commands
from kafkaesque.broker.cluster.rules.config_changes import ConfigChange, ConfigOperation
from kafkaesque.broker.cluster.rules.controller import (
    PRODUCER_ID_BLOCK,
    Controller,
    Decision,
    NewTopic,
    check_topic_name,
    is_legal_topic_name,
    refuse_internal,
)
from kafkaesque.broker.cluster.rules.dynamic_config import DynamicConfig
from kafkaesque.broker.cluster.rules.reassignment import WantedReassignment
from kafkaesque.broker.cluster.rules.registration import NewBroker
from kafkaesque.broker.cluster.rules.tables import Tables, Topic
from kafkaesque.model.errors import ErrorCode, InvalidTopic, KafkaError, PolicyViolation
from kafkaesque.model.ids import FIRST_PARTITION_GROUP, GroupId, NodeId, member_id
from kafkaesque.model.settings import broker_config


def make(nodes: Sequence[int] = (1,), **settings: str) -> Controller:
    numbers = itertools.count(1)
    named = {name.replace("_", "."): value for name, value in settings.items()}
    return Controller(
        Tables(),
        DynamicConfig(broker_config(named)),
        nodes=lambda: tuple(NodeId(node) for node in nodes),
        new_topic_id=lambda: UUID(int=next(numbers)),
    )


def commit(controller: Controller, decision: Decision[object]) -> None:
    for command in decision.commands:
        controller.tables.apply(command)


def create(controller: Controller, name: str, partition_count: int = 1, **more: object) -> Topic:
    wanted = NewTopic(name, partition_count, **more)  # type: ignore[arg-type]
    commit(controller, controller.create_topic(wanted))
    return controller.tables.by_name[name]


def refusal(controller: Controller, wanted: NewTopic) -> tuple[ErrorCode, str]:
    with pytest.raises(KafkaError) as refused:
        controller.create_topic(wanted)
    return refused.value.code, str(refused.value)


# -- create -------------------------------------------------------------------------------------


def test_create_topic_returns_a_command_and_the_future_topic_without_a_change() -> None:
    controller = make()
    decision = controller.create_topic(NewTopic("a", 2, 1, configs={"retention.ms": "5"}))
    assert decision.commands == (
        commands.CreateTopic("a", UUID(int=1), ((1,), (1,)), {"retention.ms": "5"}),
    )
    assert decision.answer.partition_count == 2
    assert controller.tables == Tables()


def test_minus_one_takes_the_brokers_defaults() -> None:
    controller = make((1, 2), num_partitions="3", default_replication_factor="2")
    topic = controller.create_topic(NewTopic("a")).answer
    assert [len(nodes) for nodes in topic.replicas] == [2, 2, 2]


def test_dry_decision_has_the_answer_and_no_command() -> None:
    decision = make().create_topic(NewTopic("a", 1)).dry()
    assert decision.commands == ()
    assert decision.answer.name == "a"


@pytest.mark.parametrize(
    ("wanted", "code", "message"),
    [
        (
            NewTopic("a", 0),
            ErrorCode.INVALID_PARTITIONS,
            "Number of partitions was set to an invalid non-positive value.",
        ),
        (
            NewTopic("a", -2),
            ErrorCode.INVALID_PARTITIONS,
            "Number of partitions was set to an invalid non-positive value.",
        ),
        (
            NewTopic("a", 1, 0),
            ErrorCode.INVALID_REPLICATION_FACTOR,
            "Replication factor must be larger than 0, or -1 to use the default value.",
        ),
        (
            NewTopic("a", assignments={0: [1]}, partition_count=2),
            ErrorCode.INVALID_REQUEST,
            "A manual partition assignment was specified, but numPartitions was not set to -1.",
        ),
        (
            NewTopic("a", assignments={0: [1]}, replication_factor=1),
            ErrorCode.INVALID_REQUEST,
            "A manual partition assignment was specified, but replication factor was not set to -1.",
        ),
        (
            NewTopic("a", assignments={1: [1]}),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "partitions should be a consecutive 0-based integer sequence",
        ),
        (
            NewTopic("a", assignments={0: [99]}),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "The manual partition assignment includes broker 99, but no such broker is registered.",
        ),
        (
            NewTopic("a", assignments={0: [1, 1]}),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "The manual partition assignment includes the broker 1 more than once.",
        ),
        (
            NewTopic("a", assignments={0: []}),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "The manual partition assignment includes an empty replica list.",
        ),
        (
            NewTopic("a", assignments={0: [1, 2], 1: [1]}),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "The manual partition assignment includes a partition with 1 replica(s), but this is not "
            "consistent with previous partitions, which have 2 replica(s).",
        ),
        (
            NewTopic("__cluster_metadata", 1),
            ErrorCode.INVALID_REQUEST,
            "Creation of internal topic __cluster_metadata is prohibited.",
        ),
        (
            NewTopic("a", 0, configs={"nope": "1"}),
            ErrorCode.INVALID_CONFIG,
            "Unknown topic config name: nope",
        ),
    ],
)
def test_bad_new_topic_is_refused_in_kafkas_words(
    wanted: NewTopic, code: ErrorCode, message: str
) -> None:
    assert refusal(make((1, 2)), wanted) == (code, message)


def test_more_replicas_than_brokers_are_refused() -> None:
    code, message = refusal(make(), NewTopic("a", 1, 2))
    assert code is ErrorCode.INVALID_REPLICATION_FACTOR
    assert "cannot be reached because only 1 broker(s) are registered" in message


def test_manual_assignment_is_taken_as_given() -> None:
    topic = make((1, 2)).create_topic(NewTopic("a", assignments={1: [2, 1], 0: [1, 2]})).answer
    assert topic.replicas == ((1, 2), (2, 1))


def test_name_that_is_taken_or_differs_only_in_dot_and_underscore_is_refused() -> None:
    controller = make()
    create(controller, "a.b_c")
    assert refusal(controller, NewTopic("a.b_c", 1)) == (
        ErrorCode.TOPIC_ALREADY_EXISTS,
        "Topic 'a.b_c' already exists.",
    )
    assert refusal(controller, NewTopic("a_b.c", 1)) == (
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        "Topic 'a_b.c' collides with existing topic: a.b_c",
    )


@pytest.mark.parametrize("wanted", [NewTopic("b", 2), NewTopic("b", assignments={0: [1], 1: [1]})])
def test_topic_beyond_the_limit_of_partitions_is_refused(wanted: NewTopic) -> None:
    controller = make(max_partitions="3")
    create(controller, "a", 2)
    code, message = refusal(controller, wanted)
    assert code is ErrorCode.POLICY_VIOLATION
    assert "max.partitions" in message


def test_count_of_two_thousand_million_is_refused_before_anything_is_placed() -> None:
    code, _ = refusal(make(), NewTopic("a", 2**31 - 1))
    assert code is ErrorCode.POLICY_VIOLATION


def test_topics_created_together_are_one_commit_without_the_refused() -> None:
    controller = make(max_partitions="3")
    wanted = [
        NewTopic("a.b", 1),
        NewTopic("a_b", 1),
        NewTopic("c", 0),
        NewTopic("d", 2),
        NewTopic("e", 1),
    ]
    decision = controller.create_topics(wanted)
    codes = [
        result.code if isinstance(result, KafkaError) else result.name for result in decision.answer
    ]
    assert codes == [
        "a.b",
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        ErrorCode.INVALID_PARTITIONS,
        "d",
        ErrorCode.POLICY_VIOLATION,
    ]
    assert controller.tables == Tables()
    commit(controller, decision)
    assert list(controller.tables.by_name) == ["a.b", "d"]
    assert controller.tables.partition_count == 3


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("", "Topic name is invalid: the empty string is not allowed"),
        (".", "Topic name is invalid: '.' is not allowed"),
        ("..", "Topic name is invalid: '..' is not allowed"),
        (
            "a b",
            "Topic name is invalid: 'a b' contains one or more characters other than ASCII "
            "alphanumerics, '.', '_' and '-'",
        ),
        (
            "x" * 250,
            f"Topic name is invalid: the length of '{'x' * 250}' is longer than the max allowed "
            "length 249",
        ),
        (
            "é",
            "Topic name is invalid: 'é' contains one or more characters other than ASCII "
            "alphanumerics, '.', '_' and '-'",
        ),
    ],
)
def test_illegal_name_is_refused_in_kafkas_words(name: str, message: str) -> None:
    with pytest.raises(InvalidTopic) as refused:
        check_topic_name(name)
    assert str(refused.value) == message
    assert not is_legal_topic_name(name)


@pytest.mark.parametrize("name", ["a", "...", "A-b_c.9", "x" * 249])
def test_legal_name_passes(name: str) -> None:
    assert is_legal_topic_name(name)


# -- grow, delete ---------------------------------------------------------------------------------


def test_topic_grows_by_the_partitions_it_lacks() -> None:
    controller = make()
    topic = create(controller, "a", 2)
    commit(controller, controller.create_partitions(topic, 5, None))
    assert (topic.partition_count, controller.tables.partition_count) == (5, 5)


@pytest.mark.parametrize(
    ("count", "assignments", "code", "message"),
    [
        (2, None, ErrorCode.INVALID_PARTITIONS, "Topic already has 2 partition(s)."),
        (
            1,
            None,
            ErrorCode.INVALID_PARTITIONS,
            "The topic a currently has 2 partition(s); 1 would not be an increase.",
        ),
        (
            -1,
            None,
            ErrorCode.INVALID_PARTITIONS,
            "The topic a currently has 2 partition(s); -1 would not be an increase.",
        ),
        (
            4,
            [[1]],
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "Attempted to add 2 additional partition(s), but only 1 assignment(s) were specified.",
        ),
        (
            3,
            [],
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "Attempted to add 1 additional partition(s), but only 0 assignment(s) were specified.",
        ),
        (
            3,
            [[9]],
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "The manual partition assignment includes broker 9, but no such broker is registered.",
        ),
    ],
)
def test_bad_growth_is_refused_in_kafkas_words(
    count: int, assignments: list[list[int]] | None, code: ErrorCode, message: str
) -> None:
    controller = make()
    topic = create(controller, "a", 2)
    with pytest.raises(KafkaError) as refused:
        controller.create_partitions(topic, count, assignments)
    assert (refused.value.code, str(refused.value)) == (code, message)


def test_growth_beyond_the_limit_of_partitions_is_refused() -> None:
    controller = make(max_partitions="3")
    topic = create(controller, "a", 2)
    with pytest.raises(PolicyViolation):
        controller.create_partitions(topic, 2**31 - 1, None)


def test_internal_topic_can_neither_grow_nor_be_deleted() -> None:
    controller = make()
    topic = create(controller, "__consumer_offsets", 2)
    with pytest.raises(PolicyViolation):
        controller.create_partitions(topic, 3, None)
    with pytest.raises(PolicyViolation):
        refuse_internal(topic)
    refuse_internal(create(controller, "a"))


def test_topics_deleted_together_are_one_commit() -> None:
    controller = make()
    doomed = [create(controller, "a"), create(controller, "b")]
    create(controller, "c")
    commit(controller, controller.delete_topics(doomed))
    assert list(controller.tables.by_name) == ["c"]


# -- settings, producer ids -----------------------------------------------------------------------


def test_changed_settings_of_a_topic_keep_or_drop_the_others() -> None:
    controller = make()
    topic = create(controller, "a", configs={"retention.ms": "5", "segment.ms": "6"})
    change = [ConfigChange("segment.ms", ConfigOperation.SET, "7")]
    commit(controller, controller.change_topic_configs(topic, change))
    assert topic.configs == {"retention.ms": "5", "segment.ms": "7"}
    commit(controller, controller.change_topic_configs(topic, change, replace_all=True))
    assert topic.configs == {"segment.ms": "7"}


def test_settings_of_one_broker_and_of_all_are_kept_apart() -> None:
    controller = make()
    own = [ConfigChange("log.retention.ms", ConfigOperation.SET, "7")]
    all_brokers = [ConfigChange("log.retention.ms", ConfigOperation.SET, "8")]
    commit(controller, controller.change_broker_configs(NodeId(1), own))
    commit(controller, controller.change_broker_configs(None, all_brokers))
    assert controller.tables.broker_configs == {
        NodeId(1): {"log.retention.ms": "7"},
        None: {"log.retention.ms": "8"},
    }
    commit(controller, controller.change_broker_configs(None, [], replace_all=True))
    assert controller.tables.broker_configs[None] == {}


def test_append_to_a_topics_list_starts_from_the_brokers_value() -> None:
    controller = make()
    controller.settings.current = replace(
        controller.settings.current, log_cleanup_policy=("compact",)
    )
    topic = create(controller, "a")
    change = [ConfigChange("cleanup.policy", ConfigOperation.APPEND, "delete")]
    commit(controller, controller.change_topic_configs(topic, change))
    assert topic.configs == {"cleanup.policy": "compact,delete"}


def test_producer_ids_are_reserved_in_blocks_that_never_overlap() -> None:
    controller = make()
    first = controller.reserve_producer_ids()
    commit(controller, first)
    second = controller.reserve_producer_ids()
    assert (first.answer.start, first.answer.stop) == (0, PRODUCER_ID_BLOCK)
    assert second.answer.start == first.answer.stop


# -- brokers ----------------------------------------------------------------------------------------


def broker(node: int, rack: str | None = None, disk: int = 0) -> NewBroker:
    return NewBroker(NodeId(node), UUID(int=1000 * disk + node), "host", 9092, rack)


def cluster_of(*nodes: int, live: Sequence[int] | None = None, **racks: str) -> Controller:
    """Registered brokers; racks by keyword, as r1="a"."""
    controller = make(nodes if live is None else live)
    for node in nodes:
        commit(controller, controller.register_broker(broker(node, racks.get(f"r{node}"))))
    return controller


def test_answer_to_a_registration_is_the_broker_as_in_the_tables() -> None:
    controller = cluster_of(1, live=())
    for wanted in (broker(2), broker(1, "rack"), broker(1, disk=1)):
        decision = controller.register_broker(wanted)
        commit(controller, decision)
        assert controller.tables.brokers[wanted.node_id] == decision.answer
    again = controller.register_broker(broker(1, disk=1))
    assert (again.commands, again.answer.generation) == ((), 1)


def test_broker_of_another_disk_is_refused_while_the_old_one_is_up_unless_it_is_gone() -> None:
    controller = cluster_of(1, 2)
    with pytest.raises(KafkaError) as refused:
        controller.register_broker(broker(1, disk=1))
    assert refused.value.code is ErrorCode.DUPLICATE_BROKER_REGISTRATION
    replaced = controller.register_broker(broker(1, disk=1), is_old_gone=True)
    assert replaced.answer.member_id == member_id(NodeId(1), 1)


def test_unregistered_broker_gets_no_more_replicas() -> None:
    controller = cluster_of(1, 2, live=(1,))
    commit(controller, controller.unregister_broker(2))
    assert refusal(controller, NewTopic("a", 1, 2))[0] is ErrorCode.INVALID_REPLICATION_FACTOR
    with pytest.raises(KafkaError) as refused:
        controller.unregister_broker(2)
    assert refused.value.code is ErrorCode.BROKER_ID_NOT_REGISTERED


def test_replicas_go_to_registered_brokers_in_different_racks() -> None:
    controller = cluster_of(1, 2, 3, 4, r1="a", r2="a", r3="b", r4="b")
    for replicas in create(controller, "a", 8, replication_factor=2).replicas:
        assert {node > 2 for node in replicas} == {True, False}


def test_broker_that_is_down_may_follow_if_a_majority_is_up() -> None:
    controller = cluster_of(1, 2, 3, live=(1, 2))
    topic = create(controller, "a", 4, replication_factor=3)
    assert {replicas[2] for replicas in topic.replicas} == {3}
    assert create(controller, "b", -1, assignments={0: [3, 1, 2]}).replicas == ((3, 1, 2),)
    code, message = refusal(controller, NewTopic("c", assignments={0: [3, 1]}))
    assert code is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert message == (
        "A majority of the brokers specified in a manual partition assignment must be up: [3, 1]"
    )


def test_topics_created_together_get_the_group_ids_that_replay_gives_them() -> None:
    controller = cluster_of(1, 2, 3)
    commit(controller, controller.register_broker(broker(2, disk=1), is_old_gone=True))
    create(controller, "a")
    decision = controller.create_topics([NewTopic("b", 2, 3), NewTopic("c", 1, 1)])
    commit(controller, decision)
    assert decision.answer == [controller.tables.by_name["b"], controller.tables.by_name["c"]]
    first = FIRST_PARTITION_GROUP
    assert list(controller.tables.by_group) == [first, first + 1, first + 2, first + 3]
    members = controller.tables.by_name["b"].partitions[0].initial_members
    assert member_id(NodeId(2), 1) in members


def test_many_small_topics_are_led_by_all_brokers_alike() -> None:
    controller = cluster_of(1, 2, 3)
    leaders = [
        create(controller, f"t{n}", 1, replication_factor=2).replicas[0][0] for n in range(6)
    ]
    assert sorted(leaders) == [1, 1, 2, 2, 3, 3]


# -- reassignment -----------------------------------------------------------------------------------


def move(replicas: Sequence[int] | None, topic: str = "a", index: int = 0) -> WantedReassignment:
    return WantedReassignment(topic, index, replicas)


def settled() -> Controller:
    controller = cluster_of(1, 2, 3, 4, live=(1, 2, 3))
    create(controller, "a", -1, assignments={0: [1, 2], 1: [2, 3]})
    return controller


@pytest.mark.parametrize(
    ("wanted", "code", "message"),
    [
        (
            move([1], topic="nope"),
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            "Unable to find a topic named nope.",
        ),
        (
            move([1], index=2),
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            "Unable to find partition a:2.",
        ),
        (
            move([1], index=-1),
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            "Unable to find partition a:-1.",
        ),
        (
            move([]),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "The manual partition assignment includes an empty replica list.",
        ),
        (
            move([1, 9]),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "The manual partition assignment includes broker 9, but no such broker is registered.",
        ),
        (
            move([1, 1]),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "The manual partition assignment includes the broker 1 more than once.",
        ),
        (
            move(None),
            ErrorCode.NO_REASSIGNMENT_IN_PROGRESS,
            "",
        ),
    ],
)
def test_bad_reassignment_is_refused_in_kafkas_words_and_hinders_no_other(
    wanted: WantedReassignment, code: ErrorCode, message: str
) -> None:
    decision = settled().alter_partition_reassignments([wanted, move([3, 4], index=1)])
    refused, accepted = decision.answer
    assert refused is not None
    assert (refused.code, str(refused)) == (code, message)
    assert accepted is None
    (command,) = decision.commands
    assert isinstance(command, commands.SetReassignments)
    assert [change.replicas for change in command.changes] == [(3, 4)]


def test_reassignment_goes_to_brokers_that_are_down_too() -> None:
    controller = settled()
    commit(controller, controller.alter_partition_reassignments([move([4])]))
    assert controller.tables.by_name["a"].partitions[0].target == (4,)


def test_change_of_the_factor_can_be_forbidden() -> None:
    decision = settled().alter_partition_reassignments(
        [move([1]), move([3, 4], index=1)], allow_factor_change=False
    )
    refused, accepted = decision.answer
    assert refused is not None
    assert refused.code is ErrorCode.INVALID_REPLICATION_FACTOR
    assert accepted is None


def test_reassignment_to_the_current_target_writes_nothing() -> None:
    controller = settled()
    assert controller.alter_partition_reassignments([move([1, 2])]).commands == ()
    commit(controller, controller.alter_partition_reassignments([move([3, 4])]))
    assert controller.alter_partition_reassignments([move([3, 4])]).commands == ()
    assert controller.alter_partition_reassignments([move([1, 2])]).commands != ()


def test_reassignments_under_way_are_listed_and_go_when_cancelled_or_complete() -> None:
    controller = settled()
    both = [move([3, 4]), move([1], index=1)]
    commit(controller, controller.alter_partition_reassignments(both))

    def listed(asked: dict[str, Sequence[int]] | None = None) -> list[tuple[str, int]]:
        found = controller.list_partition_reassignments(asked).answer
        return [(item.topic, item.partition) for item in found]

    assert listed() == [("a", 0), ("a", 1)]
    assert listed({"a": [1, 7, -1], "nope": [0]}) == [("a", 1)]
    commit(controller, controller.alter_partition_reassignments([move(None, index=1)]))
    assert listed() == [("a", 0)]
    group = controller.tables.by_name["a"].partitions[0].group_id
    nodes = [NodeId(3), NodeId(4)]
    commit(controller, controller.complete_reassignment(group, nodes))
    assert listed() == []
    assert controller.tables.by_name["a"].replicas == ((3, 4), (2, 3))
    # A repeated completion, one with another target, and one of a deleted group:
    assert controller.complete_reassignment(group, nodes).commands == ()
    commit(controller, controller.alter_partition_reassignments([move([1])]))
    assert controller.complete_reassignment(group, nodes).commands == ()
    assert controller.complete_reassignment(GroupId(99), nodes).commands == ()
