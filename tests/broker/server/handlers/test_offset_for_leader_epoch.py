from __future__ import annotations

import pytest
from tests.broker.server.conftest import MakeBroker
from tests.broker.server.local_broker import LocalBroker, every_version

from kafkaesque.model.errors import ErrorCode
from kafkaesque.wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)


def find(
    broker: LocalBroker,
    leader_epoch: int,
    *,
    name: str = "a",
    index: int = 0,
    current_epoch: int = -1,
    version: int = 4,
) -> tuple[int, int, int]:
    asked = OffsetForLeaderPartition(
        partition=index, current_leader_epoch=current_epoch, leader_epoch=leader_epoch
    )
    topics = [OffsetForLeaderTopic(topic=name, partitions=[asked])]
    answer = broker.ask(OffsetForLeaderEpochRequest(topics=topics), version)
    ((found,),) = (topic.partitions for topic in answer.topics)
    assert found.partition == index
    return found.error_code, found.leader_epoch, found.end_offset


@pytest.mark.parametrize("version", every_version(OffsetForLeaderEpochRequest))
def test_current_epoch_ends_at_the_end_of_the_log(broker: LocalBroker, version: int) -> None:
    broker.create("a")
    epoch = broker.partition("a").leader_epoch
    assert find(broker, epoch, version=version) == (ErrorCode.NONE, epoch, 0)
    broker.append("a", 1, 2, 3)
    assert find(broker, epoch, version=version) == (ErrorCode.NONE, epoch, 3)


def test_future_epoch_is_undefined_without_an_error(broker: LocalBroker) -> None:
    broker.create("a")
    assert find(broker, broker.partition("a").leader_epoch + 1) == (ErrorCode.NONE, -1, -1)
    assert find(broker, -1) == (ErrorCode.NONE, -1, -1)


def test_past_epoch_ends_at_the_first_record_of_the_next(make_broker: MakeBroker) -> None:
    epochs = []
    for records in (2, 0, 3):
        with make_broker() as broker:
            if not epochs:
                broker.create("a")
            epochs.append(broker.partition("a").leader_epoch)
            if records:
                broker.append("a", *range(records))
    broker = make_broker()
    first, silent, third = epochs
    current = broker.partition("a").leader_epoch
    assert find(broker, first) == (ErrorCode.NONE, first, 2)
    assert find(broker, silent) == (ErrorCode.NONE, first, 2)
    assert find(broker, third) == (ErrorCode.NONE, third, 5)
    assert find(broker, current) == (ErrorCode.NONE, current, 5)


def test_epoch_without_records_ends_at_the_end_of_the_epoch_before(
    make_broker: MakeBroker,
) -> None:
    for _ in range(2):
        with make_broker() as broker:
            if "a" not in broker.context.cluster.tables.by_name:
                broker.create("a")
                broker.append("a", 1, 2)
                first = broker.partition("a").leader_epoch
            silent = broker.partition("a").leader_epoch
    broker = make_broker()
    assert silent > first
    assert find(broker, silent) == (ErrorCode.NONE, first, 2)


def test_past_epoch_of_a_log_never_written_ends_at_its_start(make_broker: MakeBroker) -> None:
    with make_broker() as broker:
        broker.create("a")
        past = broker.partition("a").leader_epoch
    assert find(make_broker(), past) == (ErrorCode.NONE, past, 0)


def test_request_with_another_current_leader_epoch_is_rejected(make_broker: MakeBroker) -> None:
    with make_broker() as broker:
        broker.create("a")
    broker = make_broker()
    epoch = broker.partition("a").leader_epoch
    assert find(broker, epoch, current_epoch=epoch)[0] == ErrorCode.NONE
    assert find(broker, epoch, current_epoch=epoch + 1) == (ErrorCode.UNKNOWN_LEADER_EPOCH, -1, -1)
    assert find(broker, epoch, current_epoch=epoch - 1) == (ErrorCode.FENCED_LEADER_EPOCH, -1, -1)


def test_unknown_topic_or_partition_is_reported(broker: LocalBroker) -> None:
    broker.create("a")
    assert find(broker, 0, name="nope") == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1, -1)
    assert find(broker, 0, index=9) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1, -1)
