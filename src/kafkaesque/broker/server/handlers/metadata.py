"""Metadata, API key 3.

v0  an empty list of topics requests all; since v1 null does, and an empty list requests none
v1  controller, racks, internal flag
v2  cluster id
v3  throttle time
v4  the client may forbid the creation of topics
v5  offline replicas
v7  leader epochs (KIP-320)
v8  authorized operations (those of the cluster until v10)
v9  flexible
v10 topic ids in the answer
v12 topics requested by id (KIP-516)
v13 an error for the whole answer

If a request creates a topic, Apache Kafka answers UNKNOWN_TOPIC_OR_PARTITION; we answer when the
topic exists.
"""

from __future__ import annotations

from collections.abc import Coroutine, Mapping, Sequence
from typing import Any, Final

from kafkaesque.broker.cluster.rules.controller import NewTopic, is_legal_topic_name
from kafkaesque.broker.cluster.rules.tables import INTERNAL_TOPICS, Topic
from kafkaesque.broker.server.call import Call, CloseConnection
from kafkaesque.broker.server.context import Context
from kafkaesque.broker.server.handler import handler
from kafkaesque.broker.server.metadata_view import (
    CLUSTER_OPERATIONS,
    NO_LEADER,
    OPERATIONS_NOT_ASKED,
    TOPIC_OPERATIONS,
    partition_states,
)
from kafkaesque.model.errors import ErrorCode, KafkaError
from kafkaesque.model.ids import NO_TOPIC_ID, TopicId
from kafkaesque.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

_IDS_SINCE: Final = 12

Refusals = Mapping[str, ErrorCode]
"""Why topics could not be created, by name."""


def metadata(
    context: Context, request: MetadataRequest, call: Call
) -> MetadataResponse | Coroutine[Any, Any, MetadataResponse]:
    asked = request.topics
    if asked is None or (call.version == 0 and not asked):
        return _answer(context, request, _all_rows(context, request))
    if call.version < _IDS_SINCE and any(
        item.topic_id != NO_TOPIC_ID or item.name is None for item in asked
    ):
        return _refuse(asked)
    wanted = _to_create(context, request, asked)
    if wanted:
        return _create_and_answer(context, request, asked, wanted)
    return _answer(context, request, _rows(context, request, asked, {}))


def _to_create(
    context: Context, request: MetadataRequest, asked: Sequence[MetadataRequestTopic]
) -> list[NewTopic]:
    if not (context.config.auto_create_topics_enable and request.allow_auto_topic_creation):
        return []
    existing = context.cluster.tables.by_name
    # Internal topics have their own settings and are created by the code that needs them.
    names = (
        item.name
        for item in asked
        if item.name is not None
        and item.topic_id == NO_TOPIC_ID
        and item.name not in existing
        and item.name not in INTERNAL_TOPICS
        and is_legal_topic_name(item.name)
    )
    return [NewTopic(name) for name in dict.fromkeys(names)]


async def _create_and_answer(
    context: Context,
    request: MetadataRequest,
    asked: Sequence[MetadataRequestTopic],
    wanted: Sequence[NewTopic],
) -> MetadataResponse:
    try:
        refused = await context.cluster.create_topics(wanted)
    except KafkaError as error:
        refusals = {topic.name: error.code for topic in wanted}
    else:
        refusals = {name: error.code for name, error in refused.items()}
    return _answer(context, request, _rows(context, request, asked, refusals))


def _answer(
    context: Context, request: MetadataRequest, rows: list[MetadataResponseTopic]
) -> MetadataResponse:
    brokers = context.cluster.named_brokers()
    if not brokers:
        # A client that gets an empty list forgets all brokers and cannot recover.
        raise CloseConnection("this broker has just started and has no cluster metadata yet")
    controller_id = context.cluster.controller_id
    return MetadataResponse(
        brokers=[
            MetadataResponseBroker(
                node_id=broker.node_id, host=broker.host, port=broker.port, rack=broker.rack
            )
            for broker in brokers
        ],
        cluster_id=context.identity.cluster_id,
        controller_id=NO_LEADER if controller_id is None else controller_id,
        topics=rows,
        cluster_authorized_operations=CLUSTER_OPERATIONS
        if request.include_cluster_authorized_operations
        else OPERATIONS_NOT_ASKED,
    )


def _all_rows(context: Context, request: MetadataRequest) -> list[MetadataResponseTopic]:
    return [_row(context, request, topic) for topic in context.cluster.tables.by_name.values()]


def _rows(
    context: Context,
    request: MetadataRequest,
    asked: Sequence[MetadataRequestTopic],
    refusals: Refusals,
) -> list[MetadataResponseTopic]:
    """Returns one row per topic, however often and however it was requested."""
    tables = context.cluster.tables
    rows: dict[object, MetadataResponseTopic] = {}
    for item in asked:
        if item.topic_id != NO_TOPIC_ID:
            handle: object = item.topic_id
            topic = tables.by_id.get(TopicId(item.topic_id))
        else:
            handle = item.name
            topic = tables.by_name.get(item.name) if item.name is not None else None
        if topic is None:
            rows.setdefault(handle, _missing(item, refusals))
        elif topic.topic_id not in rows:
            rows[topic.topic_id] = _row(context, request, topic)
    return list(rows.values())


def _row(context: Context, request: MetadataRequest, topic: Topic) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        error_code=ErrorCode.NONE,
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.is_internal,
        partitions=[
            MetadataResponsePartition(
                error_code=state.error_code,
                partition_index=index,
                leader_id=state.leader_id,
                leader_epoch=state.leader_epoch,
                replica_nodes=list(state.replicas),
                isr_nodes=list(state.in_sync),
            )
            for index, state in enumerate(partition_states(context, topic))
        ],
        topic_authorized_operations=TOPIC_OPERATIONS
        if request.include_topic_authorized_operations
        else OPERATIONS_NOT_ASKED,
    )


def _missing(item: MetadataRequestTopic, refusals: Refusals) -> MetadataResponseTopic:
    name: str | None = item.name
    if item.topic_id != NO_TOPIC_ID:
        name, code = None, ErrorCode.UNKNOWN_TOPIC_ID
    elif name is None:
        name, code = "", ErrorCode.UNKNOWN_SERVER_ERROR  # Kafka's answer to neither name nor id
    elif not is_legal_topic_name(name):
        code = ErrorCode.INVALID_TOPIC_EXCEPTION
    else:
        code = refusals.get(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    return MetadataResponseTopic(
        error_code=code,
        name=name,
        topic_id=item.topic_id,
        is_internal=name in INTERNAL_TOPICS,
        partitions=[],
    )


def _refuse(asked: Sequence[MetadataRequestTopic]) -> MetadataResponse:
    """v10 and v11 have the fields for topic ids and null names, but do not support them."""
    return MetadataResponse(
        brokers=[],
        topics=[
            MetadataResponseTopic(
                error_code=ErrorCode.INVALID_REQUEST,
                name=item.name or "",
                topic_id=item.topic_id,
                partitions=[],
            )
            for item in asked
        ],
    )


HANDLER = handler(MetadataRequest, versions=(0, 13))(metadata)
