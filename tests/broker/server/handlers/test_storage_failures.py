"""A full disk: each change is refused in the row it belongs to, and none is half done."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from tests.broker.server.local_broker import LocalBroker

from kafkaesque.model.errors import ErrorCode
from kafkaesque.wire.messages import (
    alter_configs,
    create_partitions,
    create_topics,
    delete_topics,
    init_producer_id,
    metadata,
)
from kafkaesque.wire.table import Request

STORAGE_ERROR = 56
LOAD_IN_PROGRESS = 14


@contextmanager
def full_disk() -> Iterator[None]:
    """The kernel refuses every byte that would make a file longer than it may be."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def new_topic(name: str) -> create_topics.CreatableTopic:
    return create_topics.CreatableTopic(
        name=name, num_partitions=1, replication_factor=1, assignments=[], configs=[]
    )


CHANGES: dict[str, tuple[Request, int, Any]] = {
    "create topics": (
        create_topics.CreateTopicsRequest(topics=[new_topic("b"), new_topic("c")]),
        7,
        lambda answer: [row.error_code for row in answer.topics],
    ),
    "metadata": (
        metadata.MetadataRequest(
            topics=[
                metadata.MetadataRequestTopic(name="b"),
                metadata.MetadataRequestTopic(name="c"),
            ]
        ),
        12,
        lambda answer: [row.error_code for row in answer.topics],
    ),
    "delete topics": (
        delete_topics.DeleteTopicsRequest(topic_names=["a"], timeout_ms=1000),
        5,
        lambda answer: [row.error_code for row in answer.responses],
    ),
    "create partitions": (
        create_partitions.CreatePartitionsRequest(
            topics=[create_partitions.CreatePartitionsTopic(name="a", count=5, assignments=None)],
            timeout_ms=1000,
            validate_only=False,
        ),
        3,
        lambda answer: [row.error_code for row in answer.results],
    ),
    "alter configs": (
        alter_configs.AlterConfigsRequest(
            resources=[
                alter_configs.AlterConfigsResource(
                    resource_type=2,
                    resource_name="a",
                    configs=[alter_configs.AlterableConfig(name="retention.ms", value="5")],
                )
            ],
            validate_only=False,
        ),
        2,
        lambda answer: [row.error_code for row in answer.responses],
    ),
}


@pytest.mark.parametrize("change", CHANGES)
def test_change_is_refused_as_a_whole_and_succeeds_when_there_is_room_again(
    broker: LocalBroker, change: str
) -> None:
    request, version, codes = CHANGES[change]
    broker.create("a")
    tables = broker.context.cluster.tables
    before = repr(tables)
    with full_disk():
        refused = codes(broker.ask(request, version))
    assert set(refused) == {STORAGE_ERROR}
    assert repr(tables) == before
    assert set(codes(broker.ask(request, version))) == {ErrorCode.NONE}
    assert repr(tables) != before


def test_init_producer_id_is_refused_as_retriable(broker: LocalBroker) -> None:
    request = init_producer_id.InitProducerIdRequest(
        transactional_id=None, transaction_timeout_ms=0
    )
    with full_disk():
        answer = broker.ask(request, 5)
    assert (answer.error_code, answer.producer_id) == (LOAD_IN_PROGRESS, -1)
    assert broker.ask(request, 5).error_code == ErrorCode.NONE
