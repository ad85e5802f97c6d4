"""OffsetFetch, API key 9.

v1   the oldest version served
v2   null topics: all of the group; an error for the whole answer
v5   leader epoch (KIP-320)
v6   flexible
v7   require_stable (KIP-447): an offset that an open transaction may change is an error
v8   several groups in one request (KIP-709)
v9   member id and epoch (KIP-848), which classic groups do not use
v10  topics by id
"""

from __future__ import annotations

from kafkaesque.broker.groups.types import FetchedTopic, TopicToFetch
from kafkaesque.broker.server.call import Call
from kafkaesque.broker.server.context import Context
from kafkaesque.broker.server.handler import handler
from kafkaesque.model.errors import ErrorCode, KafkaError
from kafkaesque.model.ids import NO_TOPIC_ID, PartitionIndex, TopicId
from kafkaesque.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)

_GROUPS_SINCE = 8
_IDS_SINCE = 10


def offset_fetch(context: Context, request: OffsetFetchRequest, call: Call) -> OffsetFetchResponse:
    if call.version >= _GROUPS_SINCE:
        return OffsetFetchResponse(
            groups=[_group(context, item, call, request.require_stable) for item in request.groups]
        )
    wanted = None
    if request.topics is not None:
        wanted = tuple(
            TopicToFetch(topic.name, tuple(map(PartitionIndex, topic.partition_indexes)))
            for topic in request.topics
        )
    try:
        found = (
            context.groups.of_group(request.group_id)
            .reading()
            .fetch_offsets(request.group_id, wanted, require_stable=request.require_stable)
        )
    except KafkaError as error:
        return OffsetFetchResponse(error_code=error.code, topics=_refused(wanted, error.code))
    return OffsetFetchResponse(
        topics=[
            OffsetFetchResponseTopic(
                name=topic.topic,
                partitions=[
                    OffsetFetchResponsePartition(
                        partition_index=item.partition,
                        committed_offset=item.offset,
                        committed_leader_epoch=item.leader_epoch,
                        metadata=item.metadata,
                        error_code=item.error,
                    )
                    for item in topic.partitions
                ],
            )
            for topic in found
        ]
    )


def _refused(
    wanted: tuple[TopicToFetch, ...] | None, code: ErrorCode
) -> list[OffsetFetchResponseTopic]:
    """Version 1 has no error for the whole answer: every partition carries it."""
    return [
        OffsetFetchResponseTopic(
            name=topic.topic,
            partitions=[
                OffsetFetchResponsePartition(
                    partition_index=index, committed_offset=-1, metadata="", error_code=code
                )
                for index in topic.partitions
            ],
        )
        for topic in wanted or ()
    ]


def _group(
    context: Context, group: OffsetFetchRequestGroup, call: Call, require_stable: bool
) -> OffsetFetchResponseGroup:
    try:
        registry = context.groups.of_group(group.group_id).reading()
    except KafkaError as error:
        return OffsetFetchResponseGroup(group_id=group.group_id, topics=[], error_code=error.code)
    if group.topics is None:
        found = registry.fetch_offsets(group.group_id, None, require_stable=require_stable)
        rows = [_row(context, topic, call) for topic in found]
    else:
        rows = [
            _unknown_id(topic)
            if (name := _name(context, topic, call)) is None
            else _row(
                context,
                registry.fetch_offsets(
                    group.group_id,
                    (TopicToFetch(name, tuple(map(PartitionIndex, topic.partition_indexes))),),
                    require_stable=require_stable,
                )[0],
                call,
            )
            for topic in group.topics
        ]
    return OffsetFetchResponseGroup(group_id=group.group_id, topics=rows)


def _name(context: Context, topic: OffsetFetchRequestTopics, call: Call) -> str | None:
    if call.version < _IDS_SINCE:
        return topic.name
    known = context.cluster.tables.by_id.get(TopicId(topic.topic_id))
    return None if known is None else known.name


def _row(context: Context, topic: FetchedTopic, call: Call) -> OffsetFetchResponseTopics:
    known = context.cluster.tables.by_name.get(topic.topic)
    return OffsetFetchResponseTopics(
        name=topic.topic,
        topic_id=NO_TOPIC_ID if known is None else known.topic_id,
        partitions=[
            OffsetFetchResponsePartitions(
                partition_index=item.partition,
                committed_offset=item.offset,
                committed_leader_epoch=item.leader_epoch,
                metadata=item.metadata,
                error_code=item.error,
            )
            for item in topic.partitions
        ],
    )


def _unknown_id(topic: OffsetFetchRequestTopics) -> OffsetFetchResponseTopics:
    return OffsetFetchResponseTopics(
        topic_id=topic.topic_id,
        partitions=[
            OffsetFetchResponsePartitions(
                partition_index=index,
                committed_offset=-1,
                metadata="",
                error_code=ErrorCode.UNKNOWN_TOPIC_ID,
            )
            for index in topic.partition_indexes
        ],
    )


HANDLER = handler(OffsetFetchRequest, versions=(1, 10))(offset_fetch)
