"""FindCoordinator, API key 10.

v1  key types, error message
v3  flexible
v4  several keys in one request (KIP-699)
v5  a newer error code for transactions
v6  key type of share groups (KIP-932), which we do not have

The first search for a group's coordinator creates the topic that groups live in.
"""

from __future__ import annotations

from kafkaesque.broker.context import Context
from kafkaesque.broker.handler import Call, handler
from kafkaesque.cluster.operations import WantedTopic
from kafkaesque.model.errors import (
    CoordinatorNotAvailable,
    ErrorCode,
    InvalidRequest,
    KafkaError,
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
    try:
        _refuse_unknown_types(request.key_type)
        await _ensure_group_topic(context)
    except KafkaError as error:
        found = [_refused(key, error) for key in keys]
    else:
        found = [_find(context, key) for key in keys]
    if call.version >= _KEYS_SINCE:
        return FindCoordinatorResponse(coordinators=found)
    (only,) = found
    return FindCoordinatorResponse(
        error_code=only.error_code,
        error_message=only.error_message or ErrorCode.NONE.name,
        node_id=only.node_id,
        host=only.host,
        port=only.port,
    )


def _refuse_unknown_types(key_type: int) -> None:
    if key_type == TRANSACTION_KEY:
        # Final for every client; INVALID_REQUEST has librdkafka try again until it times out.
        raise TransactionalIdAuthorizationFailed("This broker does not have transactions yet")
    if key_type != GROUP_KEY:
        raise InvalidRequest(f"This broker has no coordinators of type {key_type}")


def _find(context: Context, group_id: str) -> Coordinator:
    index = context.groups.partition_of(group_id)
    broker = context.cluster.leader_of(GROUP_TOPIC, index)
    if broker is None:
        return _refused(group_id, CoordinatorNotAvailable("The coordinator is not available."))
    return Coordinator(
        key=group_id,
        node_id=broker.node_id,
        host=broker.host,
        port=broker.port,
        error_code=ErrorCode.NONE,
        error_message="",
    )


def _refused(key: str, error: KafkaError) -> Coordinator:
    return Coordinator(
        key=key, node_id=-1, host="", port=-1, error_code=error.code, error_message=str(error)
    )


async def _ensure_group_topic(context: Context) -> None:
    if context.partitions.partition_count(GROUP_TOPIC):
        return
    config, broker_count = context.config, len(context.cluster.tables.brokers)
    wanted = WantedTopic(
        GROUP_TOPIC,
        config.offsets_topic_num_partitions,
        min(config.offsets_topic_replication_factor, max(1, broker_count)),
        {
            "cleanup.policy": "compact",
            "compression.type": "producer",
            "segment.bytes": str(config.offsets_topic_segment_bytes),
        },
    )
    for error in (await context.cluster.create_topics([wanted])).values():
        raise error


HANDLER = handler(FindCoordinatorRequest, versions=(0, 6))(find_coordinator)
