from __future__ import annotations

from typing import Any

import pytest
from tests.broker.server.conftest import MakeBroker
from tests.broker.server.local_broker import LocalBroker, every_version

from kafkaesque.model.errors import ErrorCode
from kafkaesque.records.codec import Record, encode_batch
from kafkaesque.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)

LATEST, EARLIEST, MAX_TIMESTAMP = -1, -2, -3
NOTHING = (ErrorCode.NONE, -1, -1, -1)
MEANT_SINCE = {-1: 1, -2: 1, -3: 7, -4: 8, -5: 9, -6: 11}


def request(*asked: tuple[str, int, int], epoch: int = -1) -> ListOffsetsRequest:
    return ListOffsetsRequest(
        replica_id=-1,
        topics=[
            ListOffsetsTopic(
                name=name,
                partitions=[
                    ListOffsetsPartition(
                        partition_index=index, timestamp=timestamp, current_leader_epoch=epoch
                    )
                ],
            )
            for name, index, timestamp in asked
        ],
    )


def find(broker: LocalBroker, timestamp: int, version: int = 11, **more: Any) -> Any:
    (topic,) = broker.ask(request(("a", 0, timestamp), **more), version).topics
    (found,) = topic.partitions
    return found.error_code, found.timestamp, found.offset, found.leader_epoch


@pytest.fixture
def topic(broker: LocalBroker) -> LocalBroker:
    """Topic a with two batches: timestamps 100, 300, 200 and 300, 150."""
    broker.create("a")
    broker.append("a", 100, 300, 200)
    broker.append("a", 300, 150)
    return broker


@pytest.mark.parametrize("version", every_version(ListOffsetsRequest))
def test_ends_of_the_log_carry_no_timestamp(topic: LocalBroker, version: int) -> None:
    epoch = topic.partition("a").leader_epoch if version >= 4 else -1
    assert find(topic, LATEST, version) == (ErrorCode.NONE, -1, 5, epoch)
    assert find(topic, EARLIEST, version) == (ErrorCode.NONE, -1, 0, epoch)


@pytest.mark.parametrize("version", every_version(ListOffsetsRequest))
@pytest.mark.parametrize("special", [*MEANT_SINCE, -7])
def test_special_timestamp_is_refused_before_its_version(
    topic: LocalBroker, special: int, version: int
) -> None:
    code, *_ = find(topic, special, version)
    assert code == (
        ErrorCode.NONE if version >= MEANT_SINCE.get(special, 99) else ErrorCode.UNSUPPORTED_VERSION
    )


@pytest.mark.parametrize(
    ("timestamp", "found"),
    [(0, (100, 0)), (100, (100, 0)), (101, (300, 1)), (200, (300, 1)), (300, (300, 1))],
)
def test_time_lookup_finds_the_first_record_that_is_not_older(
    topic: LocalBroker, timestamp: int, found: tuple[int, int]
) -> None:
    epoch = topic.partition("a").leader_epoch
    assert find(topic, timestamp) == (ErrorCode.NONE, *found, epoch)


def test_time_lookup_after_the_last_record_finds_nothing_without_an_error(
    topic: LocalBroker,
) -> None:
    assert find(topic, 301) == NOTHING


def test_max_timestamp_is_that_of_the_first_record_that_has_it(topic: LocalBroker) -> None:
    code, timestamp, offset, _ = find(topic, MAX_TIMESTAMP)
    assert (code, timestamp, offset) == (ErrorCode.NONE, 300, 1)


@pytest.mark.parametrize("timestamp", [MAX_TIMESTAMP, 0, -5, -6])
def test_empty_partition_has_nothing_to_find(broker: LocalBroker, timestamp: int) -> None:
    broker.create("a")
    assert find(broker, timestamp) == NOTHING


def test_empty_partition_begins_and_ends_at_0_in_the_current_epoch(broker: LocalBroker) -> None:
    broker.create("a")
    epoch = broker.partition("a").leader_epoch
    assert find(broker, LATEST) == (ErrorCode.NONE, -1, 0, epoch)
    assert find(broker, EARLIEST) == (ErrorCode.NONE, -1, 0, epoch)


def test_offset_is_never_returned_with_a_negative_timestamp(broker: LocalBroker) -> None:
    """Trap 3: Java takes that for a broken answer. Records without a timestamp are not found."""
    broker.create("a")
    broker.append("a", -1, -1)
    broker.append("a", -5)
    assert find(broker, MAX_TIMESTAMP) == NOTHING
    assert find(broker, 0) == NOTHING


def test_deleted_records_are_not_found(topic: LocalBroker) -> None:
    topic.run(topic.partition("a").delete_before(topic.partition("a").log_end_offset))
    assert find(topic, EARLIEST)[2] == 5
    assert find(topic, 0) == NOTHING


def test_epoch_of_a_record_is_that_of_its_writer_not_of_todays_leader(
    make_broker: MakeBroker,
) -> None:
    """Trap 12. A restart of a node is a new epoch."""
    with make_broker() as broker:
        broker.create("a")
        broker.append("a", 100)
        first_epoch = broker.partition("a").leader_epoch
    broker = make_broker()
    broker.append("a", 200)
    epoch = broker.partition("a").leader_epoch
    assert epoch > first_epoch
    assert find(broker, EARLIEST) == (ErrorCode.NONE, -1, 0, first_epoch)
    assert find(broker, 100) == (ErrorCode.NONE, 100, 0, first_epoch)
    assert find(broker, 150) == (ErrorCode.NONE, 200, 1, epoch)
    assert find(broker, LATEST) == (ErrorCode.NONE, -1, 2, epoch)


def test_only_committed_records_count(make_broker: MakeBroker) -> None:
    broker = make_broker(flush="always")
    broker.create("a")

    async def ask_before_the_sync() -> list[tuple[int, int]]:
        batch = encode_batch([Record(0, 100, b"k", b"v")])  # type: ignore[arg-type]
        broker.partition("a").append_own(batch)
        found = []
        for timestamp in (LATEST, 0, MAX_TIMESTAMP):
            answer = await broker.answer(request(("a", 0, timestamp)), 11)
            found.append((timestamp, answer.topics[0].partitions[0].offset))
        return found

    assert broker.run(ask_before_the_sync()) == [(LATEST, 0), (0, -1), (MAX_TIMESTAMP, -1)]


def test_client_that_believes_in_another_epoch_is_refused(make_broker: MakeBroker) -> None:
    with make_broker() as broker:
        broker.create("a")
    broker = make_broker()
    epoch = broker.partition("a").leader_epoch
    assert find(broker, LATEST, epoch=epoch)[0] == ErrorCode.NONE
    assert find(broker, LATEST, epoch=epoch + 1) == (ErrorCode.UNKNOWN_LEADER_EPOCH, -1, -1, -1)
    assert find(broker, LATEST, epoch=epoch - 1) == (ErrorCode.FENCED_LEADER_EPOCH, -1, -1, -1)


def test_unknown_topic_and_partition_are_errors_of_their_own_rows(topic: LocalBroker) -> None:
    answer = topic.ask(request(("nope", 0, LATEST), ("a", 7, LATEST), ("a", 0, LATEST)), 11)
    codes = {
        (row.name, item.partition_index): item.error_code
        for row in answer.topics
        for item in row.partitions
    }
    assert codes == {
        ("nope", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ("a", 7): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ("a", 0): ErrorCode.NONE,
    }


def test_partition_asked_for_twice_has_one_row_with_an_error(topic: LocalBroker) -> None:
    answer = topic.ask(request(("a", 0, LATEST), ("a", 0, EARLIEST), ("a", 0, EARLIEST)), 11)
    ((found,),) = (row.partitions for row in answer.topics)
    assert (found.error_code, found.offset) == (ErrorCode.INVALID_REQUEST, -1)
