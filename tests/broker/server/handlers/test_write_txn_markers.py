"""Markers from coordinators, from administrators, and of unknown producers."""

from __future__ import annotations

import pytest
from tests.broker.server.local_broker import LocalBroker

from kafkaesque.model.errors import ErrorCode
from kafkaesque.model.ids import Offset, ProducerEpoch, ProducerId, TimestampMs
from kafkaesque.records.codec import Record, encode_batch
from kafkaesque.wire.messages.end_txn import EndTxnRequest
from kafkaesque.wire.messages.find_coordinator import FindCoordinatorRequest
from kafkaesque.wire.messages.init_producer_id import InitProducerIdRequest
from kafkaesque.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from kafkaesque.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)

NOW = TimestampMs(1_700_000_000_000)
NOBODY = 4711


@pytest.fixture
def topic(broker: LocalBroker) -> LocalBroker:
    """A topic `a`, with a transaction of producer 0 in epoch 0 open in it."""
    broker.create("a")
    broker.ask(FindCoordinatorRequest(key_type=1, coordinator_keys=["tx"]), 4)
    request = InitProducerIdRequest(transactional_id="tx", transaction_timeout_ms=60_000)
    assert broker.ask(request, 5).producer_id == 0
    batch = encode_batch(
        [Record(Offset(0), NOW, b"k", b"v")],
        producer_id=ProducerId(0),
        producer_epoch=ProducerEpoch(0),
        base_sequence=0,
        is_transactional=True,
    )
    rows = [PartitionProduceData(index=0, records=memoryview(bytearray(batch)))]
    produce = ProduceRequest(
        transactional_id="tx",
        acks=-1,
        timeout_ms=10_000,
        topic_data=[TopicProduceData(name="a", partition_data=rows)],
    )
    assert broker.ask(produce, 12).responses[0].partition_responses[0].error_code == ErrorCode.NONE
    return broker


def mark(
    broker: LocalBroker,
    producer_id: int,
    epoch: int = 0,
    *,
    coordinator_epoch: int = 1000,
    topic: str = "a",
    partition: int = 0,
) -> ErrorCode:
    marker = WritableTxnMarker(
        producer_id=producer_id,
        producer_epoch=epoch,
        transaction_result=True,
        topics=[WritableTxnMarkerTopic(name=topic, partition_indexes=[partition])],
        coordinator_epoch=coordinator_epoch,
    )
    answer = broker.ask(WriteTxnMarkersRequest(markers=[marker]), 1)
    return ErrorCode(answer.markers[0].topics[0].partitions[0].error_code)


def end(broker: LocalBroker, epoch: int = 0, *, commit: bool = True) -> int:
    request = EndTxnRequest(
        transactional_id="tx", producer_id=0, producer_epoch=epoch, committed=commit
    )
    return int(broker.ask(request, 5).error_code)


def test_marker_of_an_unknown_producer_ends_no_transaction(topic: LocalBroker) -> None:
    assert mark(topic, NOBODY) is ErrorCode.NONE
    partition = topic.partition("a")
    assert partition.producers.transactions.first_offset(ProducerId(0)) == 0
    assert partition.stable_offset == 0
    assert end(topic) == ErrorCode.NONE


def test_marker_for_a_partition_that_is_not_there_is_refused(topic: LocalBroker) -> None:
    missing = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert mark(topic, NOBODY, topic="nowhere") is missing
    assert mark(topic, NOBODY, partition=7) is missing


def test_marker_of_a_replaced_coordinator_is_rejected(topic: LocalBroker) -> None:
    assert mark(topic, NOBODY, coordinator_epoch=5) is ErrorCode.NONE
    fenced = ErrorCode.TRANSACTION_COORDINATOR_FENCED
    assert mark(topic, NOBODY, 1, coordinator_epoch=4) is fenced


def test_marker_of_an_epoch_that_is_over_is_refused_and_touches_nothing(
    topic: LocalBroker,
) -> None:
    assert mark(topic, NOBODY, 3) is ErrorCode.NONE
    end_offset = topic.partition("a").log_end_offset
    assert mark(topic, NOBODY, 2) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert topic.partition("a").log_end_offset == end_offset


def test_repeated_end_succeeds_and_the_opposite_end_is_refused(topic: LocalBroker) -> None:
    assert end(topic) == ErrorCode.NONE
    for _ in range(100):
        code = end(topic)
        if code != ErrorCode.CONCURRENT_TRANSACTIONS:
            break
    assert code == ErrorCode.NONE
    assert end(topic, commit=False) == ErrorCode.INVALID_TXN_STATE
    assert end(topic, epoch=7) == ErrorCode.PRODUCER_FENCED
