"""Batches of transactional producers: those that wait for the coordinator keep their order."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from tests.broker.server.local_broker import LocalBroker

from kafkaesque.broker.partitions.rules.admission import Appended
from kafkaesque.broker.server.transactional_produce import ADDS_SINCE, TransactionalRequest, Waiting
from kafkaesque.model.errors import ErrorCode
from kafkaesque.model.ids import (
    Offset,
    ProducerEpoch,
    ProducerId,
    ProducerIdentity,
    TimestampMs,
    TopicPartition,
)
from kafkaesque.records.codec import Record, encode_batch
from kafkaesque.wire.messages.end_txn import EndTxnRequest
from kafkaesque.wire.messages.find_coordinator import FindCoordinatorRequest
from kafkaesque.wire.messages.init_producer_id import InitProducerIdRequest
from kafkaesque.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)

NOW = TimestampMs(1_700_000_000_000)


@pytest.fixture
def topic(broker: LocalBroker) -> LocalBroker:
    """With a topic of two partitions, and a producer 0 in epoch 0 of the id `tx`."""
    broker.create("a", 2)
    broker.ask(FindCoordinatorRequest(key_type=1, coordinator_keys=["tx"]), 4)
    request = InitProducerIdRequest(transactional_id="tx", transaction_timeout_ms=60_000)
    answer = broker.ask(request, 5)
    assert (answer.error_code, answer.producer_id, answer.producer_epoch) == (ErrorCode.NONE, 0, 0)
    return broker


def produce(sequence: int, *partitions: int, epoch: int = 0) -> ProduceRequest:
    batch = encode_batch(
        [Record(Offset(0), NOW, b"k", b"%d" % sequence)],
        producer_id=ProducerId(0),
        producer_epoch=ProducerEpoch(epoch),
        base_sequence=sequence,
        is_transactional=True,
    )
    rows = [
        PartitionProduceData(index=index, records=memoryview(bytearray(batch)))
        for index in partitions
    ]
    return ProduceRequest(
        transactional_id="tx",
        acks=-1,
        timeout_ms=10_000,
        topic_data=[TopicProduceData(name="a", partition_data=rows)],
    )


def test_pipelined_batches_join_the_log_in_their_order(topic: LocalBroker) -> None:
    requests = [produce(sequence, 0, 1) for sequence in range(5)]
    answers = topic.ask_together(*requests, version=ADDS_SINCE)
    for number, answer in enumerate(answers):
        rows = answer.responses[0].partition_responses
        assert [(row.error_code, row.base_offset) for row in rows] == [
            (ErrorCode.NONE, number),
            (ErrorCode.NONE, number),
        ]
    assert topic.context.transactions.waiting == {}


def test_batch_after_a_refused_one_is_judged_by_itself(topic: LocalBroker) -> None:
    answers = topic.ask_together(produce(0, 0, epoch=5), produce(0, 0), version=ADDS_SINCE)
    codes = [answer.responses[0].partition_responses[0].error_code for answer in answers]
    assert codes == [ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.NONE]


@pytest.mark.parametrize(
    ("version", "code"), [(10, ErrorCode.INVALID_TXN_STATE), (11, ErrorCode.TRANSACTION_ABORTABLE)]
)
def test_partition_that_was_never_added_is_refused_with_the_code_of_the_version(
    topic: LocalBroker, version: int, code: int
) -> None:
    answer = topic.ask(produce(0, 0), version)
    assert answer.responses[0].partition_responses[0].error_code == code
    assert topic.partition("a").log_end_offset == 0


def test_next_transaction_waits_for_the_markers_of_the_last_one(topic: LocalBroker) -> None:
    topic.ask(produce(0, 0, 1), ADDS_SINCE)
    end = EndTxnRequest(transactional_id="tx", producer_id=0, producer_epoch=0, committed=True)
    assert topic.ask(end, 5).producer_epoch == 1
    answer = topic.ask(produce(0, 0, 1, epoch=1), ADDS_SINCE)
    rows = answer.responses[0].partition_responses
    assert [(row.error_code, row.base_offset) for row in rows] == [
        (ErrorCode.NONE, 2),
        (ErrorCode.NONE, 2),
    ]


class Coordinator:
    """Adds every partition. Runs `interrupt` during the first call."""

    def __init__(self, interrupt: Callable[[], None]) -> None:
        self.waiting: Waiting = {}
        self.asked = 0
        self._interrupt = interrupt

    async def put_partitions(
        self,
        transactional_id: str,
        producer: ProducerIdentity,
        partitions: list[TopicPartition],
        *,
        verify_only: bool,
    ) -> dict[TopicPartition, ErrorCode]:
        self.asked += 1
        if self.asked == 1:
            self._interrupt()
        return dict.fromkeys(partitions, ErrorCode.NONE)


def append_asking(topic: LocalBroker, coordinator: Coordinator, sequence: int) -> Appended:
    partition = topic.partition("a")
    records = produce(sequence, 0).topic_data[0].partition_data[0].records

    async def append() -> Appended:
        loop = asyncio.get_running_loop()
        request = TransactionalRequest(coordinator, "tx", ADDS_SINCE, loop)
        assert records is not None
        appended = request.append(partition, records, all_replicas=True)
        return appended if isinstance(appended, Appended) else await appended

    return topic.run(append())


def test_coordinator_is_called_again_after_the_marker_of_the_last_transaction(
    topic: LocalBroker,
) -> None:
    """Its end is written while the first batch of the next transaction waits."""
    transactions = topic.partition("a").producers.transactions
    coordinator = Coordinator(lambda: transactions.ended(ProducerId(0), Offset(0), is_commit=True))
    assert append_asking(topic, coordinator, 0).base_offset == 0
    assert coordinator.asked == 2


def test_late_repetition_is_answered_without_asking_and_does_not_hold_up_the_next(
    topic: LocalBroker,
) -> None:
    coordinator = Coordinator(lambda: None)
    assert append_asking(topic, coordinator, 0).base_offset == 0
    assert append_asking(topic, coordinator, 1).base_offset == 1
    transactions = topic.partition("a").producers.transactions
    transactions.ended(ProducerId(0), Offset(2), is_commit=True)
    assert append_asking(topic, coordinator, 0).base_offset == 0
    assert coordinator.asked == 1
    assert append_asking(topic, coordinator, 2).base_offset == 2
    assert coordinator.asked == 2
