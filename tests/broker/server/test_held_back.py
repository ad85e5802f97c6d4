"""Requests of the old flow that come over a connection which their client has given up."""

from __future__ import annotations

from time import monotonic

import pytest
from tests.broker.server.conftest import MakeBroker
from tests.broker.server.local_broker import LocalBroker
from tests.waiting import until

from kafkaesque.broker.partitions.coordinator_runtime import CoordinatorRuntime
from kafkaesque.broker.server.call import CloseConnection
from kafkaesque.model.errors import ErrorCode, NotCoordinator
from kafkaesque.model.ids import Offset, ProducerEpoch, ProducerId, TimestampMs
from kafkaesque.records.codec import Record, encode_batch
from kafkaesque.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from kafkaesque.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from kafkaesque.wire.messages.describe_transactions import DescribeTransactionsRequest
from kafkaesque.wire.messages.end_txn import EndTxnRequest
from kafkaesque.wire.messages.find_coordinator import FindCoordinatorRequest
from kafkaesque.wire.messages.init_producer_id import InitProducerIdRequest
from kafkaesque.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from kafkaesque.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from kafkaesque.wire.table import Request

OLD, NEW = 1.0, 2.0
"""When connections were made: long ago."""
INIT = InitProducerIdRequest(transactional_id="tx", transaction_timeout_ms=60_000)
ADD = AddPartitionsToTxnRequest(
    v3_and_below_transactional_id="tx",
    v3_and_below_producer_id=0,
    v3_and_below_producer_epoch=0,
    v3_and_below_topics=[AddPartitionsToTxnTopic(name="a", partitions=[0])],
)
ADD_OFFSETS = AddOffsetsToTxnRequest(
    transactional_id="tx", producer_id=0, producer_epoch=0, group_id="g"
)
OFFSETS = TxnOffsetCommitRequest(
    transactional_id="tx",
    group_id="g",
    producer_id=0,
    producer_epoch=0,
    topics=[
        TxnOffsetCommitRequestTopic(
            name="a",
            partitions=[
                TxnOffsetCommitRequestPartition(
                    partition_index=0, committed_offset=1, committed_metadata=None
                )
            ],
        )
    ],
)
COMMIT = EndTxnRequest(transactional_id="tx", producer_id=0, producer_epoch=0, committed=True)


def produce(sequence: int) -> ProduceRequest:
    batch = encode_batch(
        [Record(Offset(0), TimestampMs(1_700_000_000_000), b"k", b"v")],
        producer_id=ProducerId(0),
        producer_epoch=ProducerEpoch(0),
        base_sequence=sequence,
        is_transactional=True,
    )
    row = PartitionProduceData(index=0, records=memoryview(bytearray(batch)))
    return ProduceRequest(
        transactional_id="tx",
        acks=-1,
        timeout_ms=10_000,
        topic_data=[TopicProduceData(name="a", partition_data=[row])],
    )


@pytest.fixture
def broker(make_broker: MakeBroker) -> LocalBroker:
    """With a producer 0 in epoch 0 of the id `tx`, and its transaction open in a-0 and for group g."""
    one = make_broker(offsets_topic_num_partitions="1", transaction_state_log_num_partitions="1")
    one.create("a")
    for kind, name in ((0, "g"), (1, "tx")):
        one.ask(FindCoordinatorRequest(key_type=kind, coordinator_keys=[name]), 4)
    answer = one.ask(INIT, 4, OLD)
    assert (answer.error_code, answer.producer_id, answer.producer_epoch) == (ErrorCode.NONE, 0, 0)
    one.ask(ADD, 3, OLD)
    one.ask(ADD_OFFSETS, 3, OLD)
    assert state(one) == "Ongoing"
    return one


def state(broker: LocalBroker) -> str:
    describe = DescribeTransactionsRequest(transactional_ids=["tx"])
    return str(broker.ask(describe, 0).transaction_states[0].transaction_state)


def take_over(broker: LocalBroker, *topics: CoordinatorRuntime) -> None:  # type: ignore[type-arg]
    """As after another broker's term: the state is read from the log again."""

    async def work() -> None:
        for runtime in topics:
            for shard in runtime:
                runtime._shards.clear()
                shard.close(NotCoordinator("elsewhere"))
            await until(lambda runtime=runtime: runtime.at(0).registry is not None)

    broker.run(work())


def refused(broker: LocalBroker, request: Request, version: int, connected_at: float) -> None:
    """However often it comes."""
    for _ in range(3):
        with pytest.raises(CloseConnection):
            broker.ask(request, version, connected_at)


@pytest.mark.parametrize(
    ("request_", "version"), [(ADD, 3), (ADD_OFFSETS, 3), (COMMIT, 3)], ids=["add", "group", "end"]
)
def test_request_over_an_older_connection_closes_it_and_changes_nothing(
    broker: LocalBroker, request_: Request, version: int
) -> None:
    broker.ask(ADD, 3, NEW)
    refused(broker, request_, version, OLD)
    assert state(broker) == "Ongoing"
    assert broker.ask(COMMIT, 3, NEW).error_code == ErrorCode.NONE


def test_init_over_an_older_connection_fences_no_producer(broker: LocalBroker) -> None:
    broker.ask(COMMIT, 3, NEW)
    while broker.ask(INIT, 4, NEW).error_code == ErrorCode.CONCURRENT_TRANSACTIONS:
        pass
    refused(broker, INIT, 4, OLD)


def test_zombie_over_an_older_connection_is_fenced(broker: LocalBroker) -> None:
    while broker.ask(INIT, 4, NEW).error_code == ErrorCode.CONCURRENT_TRANSACTIONS:
        pass
    assert broker.ask(COMMIT, 3, OLD).error_code == ErrorCode.PRODUCER_FENCED


def test_coordinator_that_took_over_hears_new_connections_only(broker: LocalBroker) -> None:
    take_over(broker, broker.context.transactions.coordinator)
    refused(broker, COMMIT, 3, OLD)
    assert state(broker) == "Ongoing"
    assert broker.ask(COMMIT, 3, monotonic()).error_code == ErrorCode.NONE


def test_offsets_over_an_older_connection_are_not_committed(broker: LocalBroker) -> None:
    answer = broker.ask(OFFSETS, 3, NEW)
    assert answer.topics[0].partitions[0].error_code == ErrorCode.NONE
    refused(broker, OFFSETS, 3, OLD)
    take_over(broker, broker.context.groups)
    refused(broker, OFFSETS, 3, NEW)
    answer = broker.ask(OFFSETS, 3, monotonic())
    assert answer.topics[0].partitions[0].error_code == ErrorCode.NONE


def test_batch_over_an_older_connection_is_not_appended(broker: LocalBroker) -> None:
    answer = broker.ask(produce(0), 10, NEW)
    assert answer.responses[0].partition_responses[0].error_code == ErrorCode.NONE
    refused(broker, produce(1), 10, OLD)
    assert broker.partition("a").log_end_offset == 1
