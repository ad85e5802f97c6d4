"""AddOffsetsToTxn, API key 25: add the partition of a group's offsets to a transaction.

v2  PRODUCER_FENCED instead of INVALID_PRODUCER_EPOCH
v3  flexible
v4  TRANSACTION_ABORTABLE
"""

from __future__ import annotations

from kafkaesque.broker.partitions.group_coordinator import GROUP_TOPIC
from kafkaesque.broker.server.call import Call
from kafkaesque.broker.server.context import Context
from kafkaesque.broker.server.handler import handler
from kafkaesque.broker.transactions.types import PartitionsRequest
from kafkaesque.model.errors import ErrorCode, KafkaError
from kafkaesque.model.ids import ProducerEpoch, ProducerId, ProducerIdentity, TopicPartition
from kafkaesque.wire.messages.add_offsets_to_txn import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
)

_FENCED_SINCE = 2


async def add_offsets_to_txn(
    context: Context, request: AddOffsetsToTxnRequest, call: Call
) -> AddOffsetsToTxnResponse:
    try:
        partition = TopicPartition(GROUP_TOPIC, context.groups.partition_of(request.group_id))
        wanted = PartitionsRequest(
            transactional_id=request.transactional_id,
            producer=ProducerIdentity(
                ProducerId(request.producer_id), ProducerEpoch(request.producer_epoch)
            ),
            partitions=frozenset((partition,)),
        )
        codes = await context.transactions.put_here(wanted, verify_only=False, call=call)
        (code,) = codes.values()
    except KafkaError as error:
        code = error.code
    if code is ErrorCode.PRODUCER_FENCED and call.version < _FENCED_SINCE:
        code = ErrorCode.INVALID_PRODUCER_EPOCH
    return AddOffsetsToTxnResponse(error_code=code)


HANDLER = handler(AddOffsetsToTxnRequest, versions=(0, 4))(add_offsets_to_txn)
