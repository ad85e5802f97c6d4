"""DescribeTopicPartitions, API key 75: topics in pages of partitions (KIP-966).

Topics are sorted by name. A page ends after `response_partition_limit` partitions. Its cursor names
the next partition, and the next request returns the cursor.
"""

from __future__ import annotations

from itertools import islice
from typing import Final

from kafkaesque.broker.cluster.rules.controller import is_legal_topic_name
from kafkaesque.broker.cluster.rules.tables import INTERNAL_TOPICS, Topic
from kafkaesque.broker.server.call import Call
from kafkaesque.broker.server.context import Context
from kafkaesque.broker.server.handler import handler
from kafkaesque.broker.server.metadata_view import TOPIC_OPERATIONS, partition_states
from kafkaesque.model.errors import ErrorCode, InvalidRequest
from kafkaesque.model.ids import NO_TOPIC_ID
from kafkaesque.wire.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)

PARTITIONS_MAX: Final = 2000
"""Partitions in one answer, whatever the client requests (`max.request.partition.size.limit`)."""


def describe_topic_partitions(
    context: Context, request: DescribeTopicPartitionsRequest, call: Call
) -> DescribeTopicPartitionsResponse:
    try:
        names = _names(context, request)
    except InvalidRequest as error:
        return DescribeTopicPartitionsResponse(
            topics=[
                DescribeTopicPartitionsResponseTopic(
                    error_code=error.code, name=item.name, topic_id=NO_TOPIC_ID, partitions=[]
                )
                for item in request.topics
            ]
        )
    room = max(1, min(request.response_partition_limit, PARTITIONS_MAX))
    rows: list[DescribeTopicPartitionsResponseTopic] = []
    for name in names:
        if room == 0:
            return _page(rows, Cursor(topic_name=name, partition_index=0))
        topic = context.cluster.tables.by_name.get(name)
        if topic is None:
            rows.append(_missing(name))
            continue
        first = _first_partition(name, request.cursor)
        row = _row(context, topic, first, room)
        rows.append(row)
        room -= len(row.partitions)
        end = first + len(row.partitions)
        if end < topic.partition_count:
            return _page(rows, Cursor(topic_name=name, partition_index=end))
    return _page(rows, None)


def _names(context: Context, request: DescribeTopicPartitionsRequest) -> list[str]:
    """Returns the topics of this page and all later pages, in order."""
    cursor = request.cursor
    asked = {item.name for item in request.topics}
    if cursor is not None and cursor.partition_index < 0:
        raise InvalidRequest("The partition of the cursor must not be negative")
    if cursor is not None and asked and cursor.topic_name not in asked:
        raise InvalidRequest(f"The topics must include that of the cursor: {cursor.topic_name}")
    start = "" if cursor is None else cursor.topic_name
    return sorted(name for name in asked or context.cluster.tables.by_name if name >= start)


def _first_partition(name: str, cursor: Cursor | None) -> int:
    if cursor is None or cursor.topic_name != name:
        return 0
    return cursor.partition_index


def _row(
    context: Context, topic: Topic, first: int, room: int
) -> DescribeTopicPartitionsResponseTopic:
    states = partition_states(context, topic)
    return DescribeTopicPartitionsResponseTopic(
        error_code=ErrorCode.NONE,
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.is_internal,
        partitions=[
            DescribeTopicPartitionsResponsePartition(
                error_code=state.error_code,
                partition_index=index,
                leader_id=state.leader_id,
                leader_epoch=state.leader_epoch,
                replica_nodes=list(state.replicas),
                isr_nodes=list(state.in_sync),
                eligible_leader_replicas=[],
                last_known_elr=[],
                offline_replicas=[],
            )
            for index, state in islice(enumerate(states), first, first + room)
        ],
        topic_authorized_operations=TOPIC_OPERATIONS,
    )


def _missing(name: str) -> DescribeTopicPartitionsResponseTopic:
    legal = is_legal_topic_name(name)
    return DescribeTopicPartitionsResponseTopic(
        error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if legal
        else ErrorCode.INVALID_TOPIC_EXCEPTION,
        name=name,
        topic_id=NO_TOPIC_ID,
        is_internal=name in INTERNAL_TOPICS,
        partitions=[],
        topic_authorized_operations=TOPIC_OPERATIONS,
    )


def _page(
    rows: list[DescribeTopicPartitionsResponseTopic], cursor: Cursor | None
) -> DescribeTopicPartitionsResponse:
    return DescribeTopicPartitionsResponse(topics=rows, next_cursor=cursor)


HANDLER = handler(DescribeTopicPartitionsRequest, versions=(0, 0))(describe_topic_partitions)
