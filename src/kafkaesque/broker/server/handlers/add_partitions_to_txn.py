"""AddPartitionsToTxn, API key 24.

v2  PRODUCER_FENCED instead of INVALID_PRODUCER_EPOCH
v3  flexible; the newest that clients send
v4  several transactions, and whether to add or only to verify (KIP-890): from broker to broker
v5  TRANSACTION_ABORTABLE

Either all partitions of a transaction are added or none.
"""

from __future__ import annotations

from collections.abc import Sequence

from kafkaesque.broker.server.call import Call
from kafkaesque.broker.server.context import Context
from kafkaesque.broker.server.handler import handler
from kafkaesque.broker.transactions.types import PartitionsRequest
from kafkaesque.model.errors import ErrorCode, KafkaError
from kafkaesque.model.ids import (
    PartitionIndex,
    ProducerEpoch,
    ProducerId,
    ProducerIdentity,
    TopicPartition,
)
from kafkaesque.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
)

_SEVERAL_SINCE = 4
_ABORTABLE_SINCE = 5
_FENCED_SINCE = 2


async def add_partitions_to_txn(
    context: Context, request: AddPartitionsToTxnRequest, call: Call
) -> AddPartitionsToTxnResponse:
    if call.version < _SEVERAL_SINCE:
        producer = ProducerIdentity(
            ProducerId(request.v3_and_below_producer_id),
            ProducerEpoch(request.v3_and_below_producer_epoch),
        )
        topics = request.v3_and_below_topics
        results = await _put(
            context, request.v3_and_below_transactional_id, producer, topics, call, False
        )
        return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=results)
    return AddPartitionsToTxnResponse(
        results_by_transaction=[
            AddPartitionsToTxnResult(
                transactional_id=one.transactional_id,
                topic_results=await _put(
                    context,
                    one.transactional_id,
                    ProducerIdentity(
                        ProducerId(one.producer_id), ProducerEpoch(one.producer_epoch)
                    ),
                    one.topics,
                    call,
                    one.verify_only,
                ),
            )
            for one in request.transactions
        ]
    )


async def _put(
    context: Context,
    transactional_id: str,
    producer: ProducerIdentity,
    topics: Sequence[AddPartitionsToTxnTopic],
    call: Call,
    verify_only: bool,
) -> list[AddPartitionsToTxnTopicResult]:
    wanted = [
        TopicPartition(topic.name, PartitionIndex(index))
        for topic in topics
        for index in topic.partitions
    ]
    codes = _missing(context, wanted)
    if not codes:
        request = PartitionsRequest(
            transactional_id=transactional_id, producer=producer, partitions=frozenset(wanted)
        )
        try:
            codes = await context.transactions.put_here(request, verify_only=verify_only, call=call)
        except KafkaError as error:
            codes = dict.fromkeys(wanted, error.code)
    return [
        AddPartitionsToTxnTopicResult(
            name=topic.name,
            results_by_partition=[
                AddPartitionsToTxnPartitionResult(
                    partition_index=index,
                    partition_error_code=_client_error(
                        codes[TopicPartition(topic.name, PartitionIndex(index))], call
                    ),
                )
                for index in topic.partitions
            ],
        )
        for topic in topics
    ]


def _missing(context: Context, wanted: Sequence[TopicPartition]) -> dict[TopicPartition, ErrorCode]:
    """Returns an error for each partition if any does not exist, since none is added then; empty if
    all exist."""
    unknown = {
        name
        for name in wanted
        if not 0 <= name.partition < context.partitions.partition_count(name.topic)
    }
    if not unknown:
        return {}
    return {
        name: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if name in unknown
        else ErrorCode.OPERATION_NOT_ATTEMPTED
        for name in wanted
    }


def _client_error(code: ErrorCode, call: Call) -> ErrorCode:
    if code is ErrorCode.PRODUCER_FENCED and call.version < _FENCED_SINCE:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if code is ErrorCode.TRANSACTION_ABORTABLE and call.version < _ABORTABLE_SINCE:
        return ErrorCode.INVALID_TXN_STATE
    return code


HANDLER = handler(AddPartitionsToTxnRequest, versions=(0, 5))(add_partitions_to_txn)
