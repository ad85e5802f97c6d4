"""OffsetCommit, API key 8.

v2   the oldest version served: retention time
v5   no retention time any more
v6   leader epoch (KIP-320)
v7   static members (KIP-345)
v8   flexible
v10  topics by id (KIP-848)

An offset of a partition that does not exist is rejected; the others are committed together. As in
Kafka, a known topic without partitions is left out of the answer, and an unknown one is included.
"""

from __future__ import annotations

from kafkaesque.broker.groups.types import (
    CommitAnswer,
    CommitRequest,
    OffsetToCommit,
    TopicToCommit,
)
from kafkaesque.broker.server.call import Call
from kafkaesque.broker.server.context import Context
from kafkaesque.broker.server.coordinator_retry import call_with_retries
from kafkaesque.broker.server.handler import handler
from kafkaesque.model.errors import ErrorCode, KafkaError
from kafkaesque.model.ids import LeaderEpoch, Offset, PartitionIndex, TopicId
from kafkaesque.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)

_IDS_SINCE = 10


async def offset_commit(
    context: Context, request: OffsetCommitRequest, call: Call
) -> OffsetCommitResponse:
    codes: dict[tuple[str, int], ErrorCode] = {}
    names = [_name(context, topic, call) for topic in request.topics]
    known = []
    for name, topic in zip(names, request.topics, strict=True):
        count = 0 if name is None else context.partitions.partition_count(name)
        offsets = tuple(
            OffsetToCommit(
                PartitionIndex(item.partition_index),
                Offset(item.committed_offset),
                LeaderEpoch(item.committed_leader_epoch),
                item.committed_metadata,
            )
            for item in topic.partitions
            if 0 <= item.partition_index < count
        )
        if name is not None and offsets:
            known.append(TopicToCommit(name, offsets, TopicId(topic.topic_id)))
    if known:
        codes = await _commit(context, request, call, tuple(known))
    return OffsetCommitResponse(
        topics=[
            OffsetCommitResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    OffsetCommitResponsePartition(
                        partition_index=item.partition_index,
                        error_code=codes.get(
                            (name or "", item.partition_index), _missing(name, call)
                        ),
                    )
                    for item in topic.partitions
                ],
            )
            for name, topic in zip(names, request.topics, strict=True)
            if topic.partitions or name is None or not context.partitions.partition_count(name)
        ]
    )


async def _commit(
    context: Context, request: OffsetCommitRequest, call: Call, topics: tuple[TopicToCommit, ...]
) -> dict[tuple[str, int], ErrorCode]:
    commit = CommitRequest(
        group_id=request.group_id,
        generation_id=request.generation_id_or_member_epoch,
        member_id=request.member_id,
        group_instance_id=request.group_instance_id,
        retention_ms=request.retention_time_ms,
        topics=topics,
        api_version=call.version,
    )
    try:
        answer = await call_with_retries(
            context,
            request.group_id,
            lambda shard: shard.ask(
                lambda registry, token, now: registry.commit_offsets(commit, token, now),
                CommitAnswer,
            ),
        )
    except KafkaError as error:
        return {
            (topic.topic, item.partition): error.code
            for topic in topics
            for item in topic.partitions
        }
    return {
        (topic.topic, item.partition): item.error
        for topic in answer.topics
        for item in topic.partitions
    }


def _name(context: Context, topic: OffsetCommitRequestTopic, call: Call) -> str | None:
    if call.version < _IDS_SINCE:
        return topic.name
    known = context.cluster.tables.by_id.get(TopicId(topic.topic_id))
    return None if known is None else known.name


def _missing(name: str | None, call: Call) -> ErrorCode:
    if name is None and call.version >= _IDS_SINCE:
        return ErrorCode.UNKNOWN_TOPIC_ID
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


HANDLER = handler(OffsetCommitRequest, versions=(2, 10))(offset_commit)
