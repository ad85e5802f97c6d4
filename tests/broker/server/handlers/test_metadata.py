from __future__ import annotations

from typing import Any
from uuid import UUID, uuid4

import pytest
from tests.broker.server.conftest import MakeBroker
from tests.broker.server.local_broker import LocalBroker, every_version

from kafkaesque.model.errors import ErrorCode
from kafkaesque.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from kafkaesque.wire.table import NO_UUID

NOT_ASKED = -(2**31)


def ask(
    broker: LocalBroker,
    *names: str | None,
    version: int = 12,
    create: bool = False,
    ids: tuple[UUID, ...] = (),
    **more: Any,
) -> Any:
    topics = [MetadataRequestTopic(name=name) for name in names]
    topics += [MetadataRequestTopic(name=None, topic_id=topic_id) for topic_id in ids]
    request = MetadataRequest(topics=topics, allow_auto_topic_creation=create, **more)
    return broker.ask(request, version)


def topic_id(broker: LocalBroker, name: str) -> UUID:
    return broker.context.cluster.tables.by_name[name].topic_id


@pytest.mark.parametrize("version", every_version(MetadataRequest))
def test_existing_topic_is_described_with_this_broker_as_leader(
    broker: LocalBroker, version: int
) -> None:
    broker.create("a", 2)
    answer = broker.ask(MetadataRequest(topics=[MetadataRequestTopic(name="a")]), version)
    (node,) = answer.brokers
    assert (node.node_id, node.host, node.port) == (1, "127.0.0.1", broker.context.identity.port)
    (topic,) = answer.topics
    assert (topic.error_code, topic.name, topic.is_internal) == (ErrorCode.NONE, "a", False)
    assert [item.partition_index for item in topic.partitions] == [0, 1]
    for partition in topic.partitions:
        assert (partition.error_code, partition.leader_id) == (ErrorCode.NONE, 1)
        assert (partition.replica_nodes, partition.isr_nodes) == ([1], [1])
        assert partition.offline_replicas == []
        assert partition.leader_epoch == (
            broker.partition("a").leader_epoch if version >= 7 else -1
        )
    assert topic.topic_id == (topic_id(broker, "a") if version >= 10 else NO_UUID)
    if version >= 1:
        assert answer.controller_id == 1
    if version >= 2:
        assert answer.cluster_id == broker.context.identity.cluster_id


def test_empty_list_asks_for_all_in_v0_and_for_none_later(broker: LocalBroker) -> None:
    broker.create("a")
    broker.create("b")
    assert [topic.name for topic in ask(broker, version=0).topics] == ["a", "b"]
    assert ask(broker, version=1).topics == []


def test_null_asks_for_all_and_creates_nothing(broker: LocalBroker) -> None:
    broker.create("a")
    answer = broker.ask(MetadataRequest(topics=None), 12)
    assert [topic.name for topic in answer.topics] == ["a"]


@pytest.mark.parametrize("version", every_version(MetadataRequest))
def test_new_topic_is_ready_in_the_answer_that_creates_it(
    broker: LocalBroker, version: int
) -> None:
    (topic,) = ask(broker, "new", version=version, create=True).topics
    assert topic.error_code == ErrorCode.NONE
    assert [item.leader_id for item in topic.partitions] == [1]
    assert broker.partition("new").log_end_offset == 0


def test_new_topic_has_the_brokers_default_count(make_broker: MakeBroker) -> None:
    broker = make_broker(num_partitions="3")
    (topic,) = ask(broker, "new", create=True).topics
    assert len(topic.partitions) == 3


def test_clients_that_ask_for_a_new_topic_at_the_same_time_all_get_it(broker: LocalBroker) -> None:
    request = MetadataRequest(topics=[MetadataRequestTopic(name="new")])
    answers = broker.ask_together(request, request, request, version=12)
    rows = [answer.topics[0] for answer in answers]
    assert [row.error_code for row in rows] == [ErrorCode.NONE, ErrorCode.NONE, ErrorCode.NONE]
    assert len({row.topic_id for row in rows}) == 1
    assert [len(row.partitions) for row in rows] == [1, 1, 1]


def test_unknown_topic_is_not_created_where_the_client_forbids_it(broker: LocalBroker) -> None:
    (topic,) = ask(broker, "new", create=False).topics
    assert (topic.error_code, topic.name, topic.partitions) == (
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        "new",
        [],
    )
    assert "new" not in broker.context.cluster.tables.by_name


def test_unknown_topic_is_not_created_where_the_broker_forbids_it(make_broker: MakeBroker) -> None:
    broker = make_broker(auto_create_topics_enable="false")
    (topic,) = ask(broker, "new", create=True).topics
    assert topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize("create", [True, False])
@pytest.mark.parametrize("name", ["bad name!", "", "a" * 250])
def test_illegal_name_is_refused(broker: LocalBroker, name: str, create: bool) -> None:
    (topic,) = ask(broker, name, create=create).topics
    assert (topic.error_code, topic.name) == (ErrorCode.INVALID_TOPIC_EXCEPTION, name)


def test_topic_that_may_not_be_created_has_an_error_and_others_are_created(
    make_broker: MakeBroker,
) -> None:
    broker = make_broker(max_partitions="2")
    broker.create("a.b")
    rows = ask(broker, "a_b", "c", "d", create=True).topics
    assert [(row.name, row.error_code) for row in rows] == [
        ("a_b", ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("c", ErrorCode.NONE),
        ("d", ErrorCode.POLICY_VIOLATION),
    ]


def test_internal_topic_is_marked_and_not_created_by_asking(broker: LocalBroker) -> None:
    (row,) = ask(broker, "__consumer_offsets", create=True).topics
    assert (row.error_code, row.is_internal) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, True)
    broker.create("__consumer_offsets")
    (row,) = ask(broker, "__consumer_offsets").topics
    assert (row.error_code, row.is_internal) == (ErrorCode.NONE, True)


def test_topic_is_found_by_its_id(broker: LocalBroker) -> None:
    broker.create("a")
    (row,) = ask(broker, ids=(topic_id(broker, "a"),)).topics
    assert (row.error_code, row.name) == (ErrorCode.NONE, "a")


def test_unknown_id_is_an_error_of_its_row(broker: LocalBroker) -> None:
    unknown = uuid4()
    (row,) = ask(broker, ids=(unknown,), create=True).topics
    assert (row.error_code, row.name, row.topic_id) == (ErrorCode.UNKNOWN_TOPIC_ID, None, unknown)


def test_topic_requested_more_than_once_has_one_row(broker: LocalBroker) -> None:
    broker.create("a")
    answer = ask(broker, "a", "x", "a", "x", ids=(topic_id(broker, "a"),))
    assert [(row.name, row.error_code) for row in answer.topics] == [
        ("a", ErrorCode.NONE),
        ("x", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]


def test_neither_name_nor_id_is_an_error_of_its_row(broker: LocalBroker) -> None:
    (row,) = ask(broker, None).topics
    assert (row.error_code, row.name) == (ErrorCode.UNKNOWN_SERVER_ERROR, "")


@pytest.mark.parametrize("version", [10, 11])
def test_ids_before_their_time_refuse_the_whole_request(broker: LocalBroker, version: int) -> None:
    broker.create("a")
    item = MetadataRequestTopic(name="a", topic_id=topic_id(broker, "a"))
    other = MetadataRequestTopic(name="new")
    answer = broker.ask(MetadataRequest(topics=[item, other]), version)
    assert [(row.name, row.error_code) for row in answer.topics] == [
        ("a", ErrorCode.INVALID_REQUEST),
        ("new", ErrorCode.INVALID_REQUEST),
    ]
    assert "new" not in broker.context.cluster.tables.by_name


def test_authorized_operations_are_included_on_request(broker: LocalBroker) -> None:
    broker.create("a")
    answer = ask(broker, "a", version=10)
    assert answer.cluster_authorized_operations == NOT_ASKED
    assert answer.topics[0].topic_authorized_operations == NOT_ASKED
    answer = ask(
        broker,
        "a",
        version=10,
        include_cluster_authorized_operations=True,
        include_topic_authorized_operations=True,
    )
    assert answer.cluster_authorized_operations == 8096
    assert answer.topics[0].topic_authorized_operations == 3576
