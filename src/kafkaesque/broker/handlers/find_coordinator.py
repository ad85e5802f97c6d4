"""FindCoordinator, API key 10.

v1  key types, error message
v3  flexible
v4  several keys in one request (KIP-699)
v5  a newer error code for transactions
v6  key type of share groups (KIP-932), which we do not have

The first search for a group's coordinator creates the topic that groups live in.
"""

from __future__ import annotations

from contextlib import suppress

from kafkaesque.broker.context import Context
from kafkaesque.broker.handler import Call, handler
from kafkaesque.cluster.controller import NewTopic
from kafkaesque.model.errors import (
    ErrorCode,
    InvalidRequest,
    KafkaError,
    TopicAlreadyExists,
    TransactionalIdAuthorizationFailed,
)
from kafkaesque.partitions.group_hosts import GROUP_TOPIC
from kafkaesque.wire.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)

GROUP_KEY = 0
TRANSACTION_KEY = 1
_KEYS_SINCE = 4


async def find_coordinator(
    context: Context, request: FindCoordinatorRequest, call: Call
) -> FindCoordinatorResponse:
    keys = request.coordinator_keys if call.version >= _KEYS_SINCE else [request.key]
    code, message = ErrorCode.NONE, ""
    try:
        if request.key_type == TRANSACTION_KEY:
            # Final for every client; INVALID_REQUEST has librdkafka try again until it times out.
            raise TransactionalIdAuthorizationFailed("This broker does not have transactions yet")
        if request.key_type != GROUP_KEY:
            raise InvalidRequest(f"This broker has no coordinators of type {request.key_type}")
        await _ensure_group_topic(context)
    except KafkaError as error:
        code, message = error.code, str(error)
    known = code is ErrorCode.NONE
    node_id = int(context.identity.node_id) if known else -1
    host = context.identity.host if known else ""
    port = context.identity.port if known else -1
    if call.version >= _KEYS_SINCE:
        return FindCoordinatorResponse(
            coordinators=[
                Coordinator(
                    key=key,
                    node_id=node_id,
                    host=host,
                    port=port,
                    error_code=code,
                    error_message=message,
                )
                for key in keys
            ]
        )
    return FindCoordinatorResponse(
        error_code=code,
        error_message=message or ErrorCode.NONE.name,
        node_id=node_id,
        host=host,
        port=port,
    )


async def _ensure_group_topic(context: Context) -> None:
    if GROUP_TOPIC in context.cluster.tables.by_name:
        return
    wanted = NewTopic(
        GROUP_TOPIC,
        context.config.offsets_topic_num_partitions,
        configs={
            "cleanup.policy": "compact",
            "compression.type": "producer",
            "segment.bytes": str(context.config.offsets_topic_segment_bytes),
        },
    )
    with suppress(TopicAlreadyExists):  # another client may search at the same time
        await context.cluster.submit(lambda controller: controller.create_topic(wanted))


HANDLER = handler(FindCoordinatorRequest, versions=(0, 6))(find_coordinator)
