"""InitProducerId, API key 22: an identity for an idempotent producer.

v2  flexible
v3  the producer may send its current id and epoch, to have the epoch bumped (KIP-360)
v4  PRODUCER_FENCED instead of INVALID_PRODUCER_EPOCH
v5  a newer error code for transactions (KIP-890)

Without a transactional id, every request gets a new producer id, whatever the producer had before.
With one, the previous producer is fenced and its transaction aborted.
"""

from __future__ import annotations

from kafkaesque.broker.server.call import Call, CloseConnection
from kafkaesque.broker.server.context import Context
from kafkaesque.broker.server.handler import handler
from kafkaesque.broker.server.transaction_calls import OLDER_CONNECTION
from kafkaesque.broker.transactions.registry import TransactionRegistry
from kafkaesque.broker.transactions.types import InitAnswer, InitRequest, TransactionEffects
from kafkaesque.model.clock import Moment
from kafkaesque.model.errors import ErrorCode, KafkaError, NotController
from kafkaesque.model.ids import NO_PRODUCER, ProducerEpoch, ProducerId, ProducerIdentity
from kafkaesque.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

_FENCED_SINCE = 4


async def init_producer_id(
    context: Context, request: InitProducerIdRequest, call: Call
) -> InitProducerIdResponse:
    if request.transactional_id == "":
        return _refused(ErrorCode.INVALID_REQUEST)
    if (request.producer_id == -1) is not (request.producer_epoch == -1):
        return _refused(ErrorCode.INVALID_REQUEST)
    if request.transactional_id is not None:
        return await _init_transactional(context, request, request.transactional_id, call)
    try:
        producer_id = await context.cluster.next_producer_id()
    except KafkaError:
        # The only code after which every client retries. It should: a full disk may get room, and
        # no id was assigned.
        return _refused(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    return InitProducerIdResponse(
        error_code=ErrorCode.NONE, producer_id=producer_id, producer_epoch=0
    )


async def _init_transactional(
    context: Context, request: InitProducerIdRequest, transactional_id: str, call: Call
) -> InitProducerIdResponse:
    # Checked first, so that no coordinator is looked up for an invalid request: as in Kafka.
    if not 0 < request.transaction_timeout_ms <= context.config.transaction_max_timeout_ms:
        return _refused(ErrorCode.INVALID_TRANSACTION_TIMEOUT)
    try:
        shard = context.transactions.coordinator.of_key(transactional_id)
        spare = NO_PRODUCER
        if shard.reading().needs_producer_id(transactional_id):
            spare = await context.cluster.next_producer_id()
        wanted = InitRequest(
            transactional_id=transactional_id,
            timeout_ms=request.transaction_timeout_ms,
            known=ProducerIdentity(
                ProducerId(request.producer_id), ProducerEpoch(request.producer_epoch)
            ),
            spare_producer_id=spare,
            connected_at=call.connected_at,
        )

        def init(registry: TransactionRegistry, token: int, now: Moment) -> TransactionEffects:
            # Checked last, because the client may have given up and sent the request again
            # meanwhile.
            if not registry.admits_init(wanted):
                raise CloseConnection(OLDER_CONNECTION)
            return registry.init_producer(wanted, token, now)

        answer = await shard.ask(init, InitAnswer)
    except NotController:
        return _refused(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    except KafkaError as error:
        return _refused(error.code)
    if answer.error is not ErrorCode.NONE:
        is_old = answer.error is ErrorCode.PRODUCER_FENCED and call.version < _FENCED_SINCE
        return _refused(ErrorCode.INVALID_PRODUCER_EPOCH if is_old else answer.error)
    return InitProducerIdResponse(
        error_code=ErrorCode.NONE,
        producer_id=answer.producer.producer_id,
        producer_epoch=answer.producer.epoch,
    )


def _refused(code: ErrorCode) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=code, producer_id=-1, producer_epoch=-1)


HANDLER = handler(InitProducerIdRequest, versions=(0, 5))(init_producer_id)
