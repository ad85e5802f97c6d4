"""InitProducerId, API key 22: an identity for an idempotent producer.

v2  flexible
v3  the producer may name the id and epoch it has, to have the epoch raised (KIP-360)
v4  PRODUCER_FENCED instead of INVALID_PRODUCER_EPOCH
v5  a newer error code for transactions (KIP-890)

Without a transactional id every request gets a new id, whatever the producer had before. Transactions
are not offered. A transactional id is refused with the code that librdkafka, Java, aiokafka and
kafka-python all take as final: any other has one of them ask again for ever.
"""

from __future__ import annotations

from kafkaesque.broker.context import Context
from kafkaesque.broker.handler import Call, handler
from kafkaesque.model.errors import ErrorCode, KafkaError
from kafkaesque.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse


async def init_producer_id(
    context: Context, request: InitProducerIdRequest, call: Call
) -> InitProducerIdResponse:
    code = _refusal(request, context.config.transaction_max_timeout_ms)
    if code is not ErrorCode.NONE:
        return _refused(code)
    try:
        producer_id = await context.cluster.next_producer_id()
    except KafkaError:
        # The one code after which every client asks again, which it should: a full disk may get
        # room, and no id was given away.
        return _refused(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    return InitProducerIdResponse(
        error_code=ErrorCode.NONE, producer_id=producer_id, producer_epoch=0
    )


def _refusal(request: InitProducerIdRequest, timeout_ms_max: int) -> ErrorCode:
    if request.transactional_id == "":
        return ErrorCode.INVALID_REQUEST
    if (request.producer_id == -1) is not (request.producer_epoch == -1):
        return ErrorCode.INVALID_REQUEST
    if request.transactional_id is None:
        return ErrorCode.NONE
    if not 0 < request.transaction_timeout_ms <= timeout_ms_max:
        return ErrorCode.INVALID_TRANSACTION_TIMEOUT
    return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


def _refused(code: ErrorCode) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=code, producer_id=-1, producer_epoch=-1)


HANDLER = handler(InitProducerIdRequest, versions=(0, 5))(init_producer_id)
