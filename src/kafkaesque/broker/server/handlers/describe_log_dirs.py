"""DescribeLogDirs, API key 35: the disk usage of this broker's partitions (KIP-113).

v2  flexible
v3  an error for the whole answer
v4  size and free space of the volume (KIP-827)
v5  whether the directory is closed to new partitions; ours never is

A broker has one data directory. Topics and partitions that do not exist are left out. A replica's
lag is the distance from its end to the leader's high watermark; 0 while no leader is known.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable, Iterator

from kafkaesque.broker.partitions.partition import Partition
from kafkaesque.broker.server.call import Call
from kafkaesque.broker.server.context import Context
from kafkaesque.broker.server.end_offsets import EndOffsets, find_end_offsets
from kafkaesque.broker.server.handler import handler
from kafkaesque.model.errors import ErrorCode
from kafkaesque.wire.messages.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)


async def describe_log_dirs(
    context: Context, request: DescribeLogDirsRequest, call: Call
) -> DescribeLogDirsResponse:
    directory = await asyncio.to_thread(_directory, context.config.log_dirs)
    if directory.error_code == ErrorCode.NONE:
        chosen = list(_chosen(context, request.topics))
        ends = await find_end_offsets(context, (partition.name for partition in chosen))
        directory.topics = _topics(chosen, ends)
    return DescribeLogDirsResponse(error_code=ErrorCode.NONE, results=[directory])


def _directory(log_dirs: str) -> DescribeLogDirsResult:
    """Returns the data directory and its volume, without topics. Blocking."""
    path = os.path.abspath(log_dirs)
    try:
        volume = os.statvfs(path)
    except OSError:
        return DescribeLogDirsResult(
            error_code=ErrorCode.KAFKA_STORAGE_ERROR, log_dir=path, topics=[]
        )
    return DescribeLogDirsResult(
        error_code=ErrorCode.NONE,
        log_dir=path,
        topics=[],
        total_bytes=volume.f_frsize * volume.f_blocks,
        usable_bytes=volume.f_frsize * volume.f_bavail,
    )


def _chosen(
    context: Context, asked: Iterable[DescribableLogDirTopic] | None
) -> Iterator[Partition]:
    if asked is None:
        yield from context.partitions
        return
    wanted: dict[str, set[int]] = {}
    for item in asked:
        wanted.setdefault(item.topic, set()).update(item.partitions)
    for topic, indexes in wanted.items():
        for partition in context.partitions.of_topic(topic):
            if partition.name.partition in indexes:
                yield partition


def _topics(partitions: Iterable[Partition], ends: EndOffsets) -> list[DescribeLogDirsTopic]:
    topics: dict[str, DescribeLogDirsTopic] = {}
    for partition in partitions:
        name, index = partition.name
        topic = topics.get(name)
        if topic is None:
            topic = topics[name] = DescribeLogDirsTopic(name=name, partitions=[])
        topic.partitions.append(
            DescribeLogDirsPartition(
                partition_index=index,
                partition_size=partition.log.size_bytes,
                offset_lag=_lag(partition, ends),
                is_future_key=False,
            )
        )
    return list(topics.values())


def _lag(partition: Partition, ends: EndOffsets) -> int:
    return max(0, ends.get(partition.name, partition.high_watermark) - partition.log_end_offset)


HANDLER = handler(DescribeLogDirsRequest, versions=(1, 5))(describe_log_dirs)
