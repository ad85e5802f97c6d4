"""OffsetForLeaderEpoch, API key 23: the end offset of a leader epoch (KIP-101, KIP-320).

v2  the client sends the leader epoch it has, and gets an error if that is not current
v3  replica id, which we ignore
v4  flexible

A consumer that resumes uses this to find out whether the log was truncated below its position.
"""

from __future__ import annotations

from kafkaesque.broker.partitions.partition import Partition
from kafkaesque.broker.server.call import Call
from kafkaesque.broker.server.context import Context
from kafkaesque.broker.server.handler import handler
from kafkaesque.model.errors import ErrorCode, KafkaError
from kafkaesque.model.ids import NO_EPOCH, NO_OFFSET, LeaderEpoch, Offset
from kafkaesque.wire.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)


def offset_for_leader_epoch(
    context: Context, request: OffsetForLeaderEpochRequest, call: Call
) -> OffsetForLeaderEpochResponse:
    return OffsetForLeaderEpochResponse(
        topics=[
            OffsetForLeaderTopicResult(
                topic=topic.topic,
                partitions=[_find(context, topic.topic, asked) for asked in topic.partitions],
            )
            for topic in request.topics
        ]
    )


def _find(context: Context, topic: str, asked: OffsetForLeaderPartition) -> EpochEndOffset:
    try:
        partition = context.partitions.get(topic, asked.partition)
        partition.check_epoch(asked.current_leader_epoch)
    except KafkaError as error:
        return EpochEndOffset(error_code=error.code, partition=asked.partition)
    epoch, end_offset = _epoch_end(partition, LeaderEpoch(asked.leader_epoch))
    return EpochEndOffset(
        error_code=ErrorCode.NONE,
        partition=asked.partition,
        leader_epoch=epoch,
        end_offset=end_offset,
    )


def _epoch_end(partition: Partition, asked: LeaderEpoch) -> tuple[LeaderEpoch, Offset]:
    """Returns the epoch and its end. The log has only epochs that wrote something. The current
    epoch may not have done so yet, but it began at the end of the log, so every earlier epoch ended
    there at the latest."""
    if not 0 <= asked <= partition.leader_epoch:
        return NO_EPOCH, NO_OFFSET
    end_offset = partition.log_end_offset
    newest = partition.log.epoch_at(end_offset)
    if asked == partition.leader_epoch or newest == NO_EPOCH:
        return asked, end_offset
    if asked >= newest:
        return newest, end_offset
    return partition.log.epoch_end(asked)


HANDLER = handler(OffsetForLeaderEpochRequest, versions=(2, 4))(offset_for_leader_epoch)
