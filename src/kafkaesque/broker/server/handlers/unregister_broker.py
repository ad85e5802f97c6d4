"""UnregisterBroker, API key 64: remove a broker from the cluster (KIP-500)."""

from __future__ import annotations

from kafkaesque.broker.server.call import Call
from kafkaesque.broker.server.context import Context
from kafkaesque.broker.server.handler import handler
from kafkaesque.model.errors import ErrorCode, KafkaError
from kafkaesque.wire.messages.unregister_broker import (
    UnregisterBrokerRequest,
    UnregisterBrokerResponse,
)


async def unregister_broker(
    context: Context, request: UnregisterBrokerRequest, call: Call
) -> UnregisterBrokerResponse:
    node_id = request.broker_id
    try:
        await context.cluster.submit(lambda controller: controller.unregister_broker(node_id))
    except KafkaError as error:
        return UnregisterBrokerResponse(error_code=error.code, error_message=str(error))
    return UnregisterBrokerResponse(error_code=ErrorCode.NONE, error_message="")


HANDLER = handler(UnregisterBrokerRequest, versions=(0, 0), at_controller=True)(unregister_broker)
