"""ListOffsets, API key 2.

v1  one offset instead of a list (v0 is not served)
v2  isolation level: read_committed consumers get the last stable offset
v4  leader epochs (KIP-320)
v6  flexible
v7  timestamp -3: the record with the greatest timestamp (KIP-734)
v8  timestamp -4: the earliest record on local disk (KIP-405)
v9  timestamp -5: the latest record in tiered storage (KIP-1005)
v10 a timeout, for reads of tiered storage (KIP-1075)
v11 timestamp -6: the earliest record not yet tiered (KIP-1023)

Only committed records count. A time lookup without a match returns offset -1 without an error.
"""

from __future__ import annotations

from typing import Final

from kafkaesque.broker.partitions.partition import Partition
from kafkaesque.broker.server.call import Call
from kafkaesque.broker.server.context import Context
from kafkaesque.broker.server.handler import handler
from kafkaesque.model.errors import ErrorCode, KafkaError
from kafkaesque.model.ids import NO_TIMESTAMP, LeaderEpoch, Offset, TimestampMs
from kafkaesque.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)

READ_COMMITTED: Final = 1

LATEST: Final = -1
EARLIEST: Final = -2
MAX_TIMESTAMP: Final = -3
EARLIEST_LOCAL: Final = -4
LATEST_TIERED: Final = -5
EARLIEST_PENDING_UPLOAD: Final = -6

SPECIAL_SINCE: Final = {
    LATEST: 1,
    EARLIEST: 1,
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL: 8,
    LATEST_TIERED: 9,
    EARLIEST_PENDING_UPLOAD: 11,
}
"""The first version in which a negative timestamp has a meaning."""


def list_offsets(context: Context, request: ListOffsetsRequest, call: Call) -> ListOffsetsResponse:
    topics: dict[str, dict[int, ListOffsetsPartitionResponse]] = {}
    stable_only = request.isolation_level == READ_COMMITTED
    for topic in request.topics:
        for asked in topic.partitions:
            answers = topics.setdefault(topic.name, {})
            index = asked.partition_index
            if index in answers:
                answers[index] = _refused(index, ErrorCode.INVALID_REQUEST)
                continue
            try:
                partition = context.partitions.get(topic.name, index)
                answers[index] = _find(partition, asked, call, stable_only=stable_only)
            except KafkaError as error:
                answers[index] = _refused(index, error.code)
    return ListOffsetsResponse(
        topics=[
            ListOffsetsTopicResponse(name=name, partitions=list(answers.values()))
            for name, answers in topics.items()
        ]
    )


def _find(
    partition: Partition, asked: ListOffsetsPartition, call: Call, *, stable_only: bool
) -> ListOffsetsPartitionResponse:
    index, timestamp = asked.partition_index, asked.timestamp
    if timestamp < 0 and call.version < SPECIAL_SINCE.get(timestamp, call.version + 1):
        return _refused(index, ErrorCode.UNSUPPORTED_VERSION)
    partition.check_epoch(asked.current_leader_epoch)
    end_offset = partition.stable_offset if stable_only else partition.high_watermark
    if timestamp == LATEST:
        return _at(index, end_offset, partition.leader_epoch)
    if timestamp in (EARLIEST, EARLIEST_LOCAL):
        return _at(index, partition.log_start_offset, _first_epoch(partition))
    if timestamp in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
        return _refused(index, ErrorCode.NONE)  # there is no tiered storage
    if timestamp == MAX_TIMESTAMP:
        found = partition.max_timestamp()
    else:
        found = partition.find_by_timestamp(TimestampMs(timestamp))
    # A record without a timestamp is never found by time: the Java client rejects an offset with a
    # negative timestamp.
    if found is None or found.offset >= end_offset:
        return _refused(index, ErrorCode.NONE)
    return _at(index, found.offset, found.leader_epoch, found.timestamp)


def _first_epoch(partition: Partition) -> LeaderEpoch:
    """Returns the epoch that wrote the first record (KIP-320), which need not be the current
    one."""
    start = partition.log_start_offset
    if start == partition.log_end_offset:
        return partition.leader_epoch
    return partition.log.epoch_at(start)


def _at(
    index: int, offset: Offset, epoch: LeaderEpoch, timestamp: TimestampMs = NO_TIMESTAMP
) -> ListOffsetsPartitionResponse:
    return ListOffsetsPartitionResponse(
        partition_index=index,
        error_code=ErrorCode.NONE,
        timestamp=timestamp,
        offset=offset,
        leader_epoch=epoch,
    )


def _refused(index: int, code: ErrorCode) -> ListOffsetsPartitionResponse:
    return ListOffsetsPartitionResponse(partition_index=index, error_code=code)


HANDLER = handler(ListOffsetsRequest, versions=(1, 11))(list_offsets)
