"""EndTxn, API key 26: commit or abort.

v2  PRODUCER_FENCED instead of INVALID_PRODUCER_EPOCH
v3  flexible
v4  TRANSACTION_ABORTABLE
v5  the epoch is bumped, and the answer has the new one (KIP-890)

The answer is sent when the decision is on the disks of a majority. The markers follow; until they
are written, the next transaction gets CONCURRENT_TRANSACTIONS.
"""

from __future__ import annotations

from kafkaesque.broker.server.call import Call
from kafkaesque.broker.server.context import Context
from kafkaesque.broker.server.handler import handler
from kafkaesque.broker.server.transaction_calls import check_caller
from kafkaesque.broker.transactions.registry import TransactionRegistry
from kafkaesque.broker.transactions.types import (
    NEW_FLOW,
    NOBODY,
    OLD_FLOW,
    EndAnswer,
    EndRequest,
    TransactionEffects,
)
from kafkaesque.model.clock import Moment
from kafkaesque.model.errors import ErrorCode, KafkaError
from kafkaesque.model.ids import NO_PRODUCER, ProducerEpoch, ProducerId, ProducerIdentity
from kafkaesque.wire.messages.end_txn import EndTxnRequest, EndTxnResponse

_FENCED_SINCE = 2
_NEW_FLOW_SINCE = 5


async def end_txn(context: Context, request: EndTxnRequest, call: Call) -> EndTxnResponse:
    try:
        code, producer = await _end(context, request, call)
    except KafkaError as error:
        code, producer = error.code, NOBODY
    if code is ErrorCode.PRODUCER_FENCED and call.version < _FENCED_SINCE:
        code = ErrorCode.INVALID_PRODUCER_EPOCH
    return EndTxnResponse(
        error_code=code, producer_id=producer.producer_id, producer_epoch=producer.epoch
    )


async def _end(
    context: Context, request: EndTxnRequest, call: Call
) -> tuple[ErrorCode, ProducerIdentity]:
    if not request.transactional_id:
        return ErrorCode.INVALID_REQUEST, NOBODY
    flow = NEW_FLOW if call.version >= _NEW_FLOW_SINCE else OLD_FLOW
    shard = context.transactions.coordinator.of_key(request.transactional_id)
    spare = NO_PRODUCER
    if flow >= NEW_FLOW and shard.reading().needs_producer_id(request.transactional_id):
        spare = await context.cluster.next_producer_id()
    wanted = EndRequest(
        transactional_id=request.transactional_id,
        producer=ProducerIdentity(
            ProducerId(request.producer_id), ProducerEpoch(request.producer_epoch)
        ),
        is_commit=request.committed,
        flow=flow,
        spare_producer_id=spare,
    )

    def end(registry: TransactionRegistry, token: int, now: Moment) -> TransactionEffects:
        if flow < NEW_FLOW:
            check_caller(registry, wanted.transactional_id, wanted.producer, call)
        return registry.end(wanted, token, now)

    answer = await shard.ask(end, EndAnswer)
    return answer.error, answer.producer


HANDLER = handler(EndTxnRequest, versions=(0, 5))(end_txn)
