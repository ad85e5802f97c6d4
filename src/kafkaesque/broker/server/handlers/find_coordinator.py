"""FindCoordinator, API key 10.

v1  key types, error message
v3  flexible
v4  several keys in one request (KIP-699)
v5  a newer error code for transactions
v6  key type of share groups (KIP-932), which we do not have

The first search for a coordinator creates its internal topic. While a new leader of the partition
is being elected, the answer waits: Apache Kafka always names a broker, the old leader or the new
one, and librdkafka gives up after a few errors.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Final

from kafkaesque.broker.cluster.rules.controller import NewTopic
from kafkaesque.broker.partitions.coordinator_runtime import CoordinatorRuntime
from kafkaesque.broker.partitions.group_coordinator import GROUP_TOPIC
from kafkaesque.broker.server.call import Call
from kafkaesque.broker.server.context import Context
from kafkaesque.broker.server.coordinator_retry import ELECTION_SECONDS
from kafkaesque.broker.server.handler import handler
from kafkaesque.model.errors import (
    CoordinatorNotAvailable,
    ErrorCode,
    InvalidRequest,
    KafkaError,
)
from kafkaesque.model.settings import BrokerConfig
from kafkaesque.wire.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)

GROUP_KEY = 0
TRANSACTION_KEY = 1
_KEYS_SINCE = 4
_RETRY_SECONDS: Final = 0.02


async def find_coordinator(
    context: Context, request: FindCoordinatorRequest, call: Call
) -> FindCoordinatorResponse:
    keys = request.coordinator_keys if call.version >= _KEYS_SINCE else [request.key]
    try:
        runtime = _runtime(context, request.key_type)
        await _ensure_topic(context, runtime.topic)
    except KafkaError as error:
        found = [_refused(key, error) for key in keys]
    else:
        found = await _find_all(context, runtime, keys)
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


def _runtime(context: Context, key_type: int) -> CoordinatorRuntime[Any]:
    if key_type == GROUP_KEY:
        return context.groups
    if key_type == TRANSACTION_KEY:
        return context.transactions.coordinator
    raise InvalidRequest(f"This broker has no coordinators of type {key_type}")


async def _find_all(
    context: Context, runtime: CoordinatorRuntime[Any], keys: Sequence[str]
) -> list[Coordinator]:
    loop = asyncio.get_running_loop()
    deadline = loop.time() + ELECTION_SECONDS
    while True:
        found = [_find(context, runtime, key) for key in keys]
        if all(one.error_code == ErrorCode.NONE for one in found) or loop.time() > deadline:
            return found
        await asyncio.sleep(_RETRY_SECONDS)


def _find(context: Context, runtime: CoordinatorRuntime[Any], key: str) -> Coordinator:
    broker = context.cluster.leader_of(runtime.topic, runtime.partition_of(key))
    if broker is None:
        return _refused(key, CoordinatorNotAvailable("The coordinator is not available."))
    return Coordinator(
        key=key,
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


async def _ensure_topic(context: Context, topic: str) -> None:
    if context.partitions.partition_count(topic):
        return
    broker_count = max(1, len(context.cluster.tables.brokers))
    wanted = _wanted(context.config, topic, broker_count)
    for error in (await context.cluster.create_topics([wanted])).values():
        raise error


def _wanted(config: BrokerConfig, topic: str, broker_count: int) -> NewTopic:
    settings = {"cleanup.policy": "compact", "compression.type": "producer"}
    if topic == GROUP_TOPIC:
        settings["segment.bytes"] = str(config.offsets_topic_segment_bytes)
        replicas = min(config.offsets_topic_replication_factor, broker_count)
        return NewTopic(topic, config.offsets_topic_num_partitions, replicas, settings)
    replicas = min(config.transaction_state_log_replication_factor, broker_count)
    settings["segment.bytes"] = str(config.transaction_state_log_segment_bytes)
    settings["min.insync.replicas"] = str(min(config.transaction_state_log_min_isr, replicas))
    return NewTopic(topic, config.transaction_state_log_num_partitions, replicas, settings)


HANDLER = handler(FindCoordinatorRequest, versions=(0, 6))(find_coordinator)
