"""OffsetDelete, API key 47 (KIP-496)."""

from __future__ import annotations

from kafkaesque.broker.groups.types import DeleteOffsetsAnswer, DeleteOffsetsRequest, TopicToFetch
from kafkaesque.broker.server.call import Call
from kafkaesque.broker.server.context import Context
from kafkaesque.broker.server.handler import handler
from kafkaesque.model.errors import ErrorCode, KafkaError
from kafkaesque.model.ids import PartitionIndex
from kafkaesque.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)


async def offset_delete(
    context: Context, request: OffsetDeleteRequest, call: Call
) -> OffsetDeleteResponse:
    known = []
    for topic in request.topics:
        count = context.partitions.partition_count(topic.name)
        indexes = tuple(
            PartitionIndex(item.partition_index)
            for item in topic.partitions
            if 0 <= item.partition_index < count
        )
        if indexes:
            known.append(TopicToFetch(topic.name, indexes))
    delete = DeleteOffsetsRequest(group_id=request.group_id, topics=tuple(known))
    try:
        answer = await context.groups.of_group(request.group_id).ask(
            lambda registry, token, now: registry.delete_offsets(delete, token, now),
            DeleteOffsetsAnswer,
        )
    except KafkaError as error:
        return OffsetDeleteResponse(error_code=error.code, topics=[])
    if answer.error is not ErrorCode.NONE:
        return OffsetDeleteResponse(error_code=answer.error, topics=[])
    codes = {
        (topic.topic, item.partition): item.error
        for topic in answer.topics
        for item in topic.partitions
    }
    return OffsetDeleteResponse(
        error_code=ErrorCode.NONE,
        topics=[
            OffsetDeleteResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetDeleteResponsePartition(
                        partition_index=item.partition_index,
                        error_code=codes.get(
                            (topic.name, PartitionIndex(item.partition_index)),
                            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                        ),
                    )
                    for item in topic.partitions
                ],
            )
            for topic in request.topics
        ],
    )


HANDLER = handler(OffsetDeleteRequest, versions=(0, 0))(offset_delete)
