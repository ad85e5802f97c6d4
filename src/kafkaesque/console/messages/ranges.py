"""Offset ranges: which offsets of each partition a query reads, and in which order."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Final

from kafkaesque.admin.requests import EARLIEST, LATEST, list_offsets
from kafkaesque.client.wire.pool import ConnectionPool
from kafkaesque.console.messages.query import InvalidQuery, MessageQuery
from kafkaesque.console.rules.view import Document, PartitionKey, TopicView

BUCKETS: Final = 60

OffsetRange = tuple[int, int]
"""First offset, and the offset after the last."""


def partition_leaders(topic: TopicView, partitions: frozenset[int]) -> dict[PartitionKey, int]:
    """Leaders of these partitions; of all partitions if none are given."""
    unknown = partitions - {item.index for item in topic.partitions}
    if unknown:
        raise InvalidQuery(f"topic '{topic.name}' has no partition {min(unknown)}")
    return {
        (topic.name, item.index): item.leader
        for item in topic.partitions
        if not partitions or item.index in partitions
    }


async def offset_ranges(
    links: ConnectionPool, topic: TopicView, query: MessageQuery
) -> dict[int, OffsetRange]:
    """The range to read in each partition whose leader answers."""
    leaders = partition_leaders(topic, query.partitions)
    starts, ends = await asyncio.gather(
        list_offsets(links, leaders, EARLIEST), list_offsets(links, leaders, LATEST)
    )
    ranges = {key: (starts[key], end) for key, end in ends.items() if key in starts}
    start = query.start
    if start.kind == "time":
        at = await list_offsets(links, leaders, start.number)
        ranges = {key: (at.get(key, end), end) for key, (_, end) in ranges.items()}
    elif start.kind == "offset":
        ranges = {
            key: (min(max(low, start.number), end), end) for key, (low, end) in ranges.items()
        }
    elif start.kind == "last":
        ranges = {key: (max(low, end - start.number), end) for key, (low, end) in ranges.items()}
    if query.end_ms is not None:
        until = await list_offsets(links, leaders, query.end_ms)
        ranges = {
            key: (low, max(low, min(end, until.get(key, end))))
            for key, (low, end) in ranges.items()
        }
    return {index: found for (_, index), found in ranges.items()}


async def histogram(
    links: ConnectionPool, topic: TopicView, since_ms: int, until_ms: int, buckets: int = BUCKETS
) -> list[Document]:
    """Record counts over time, from ListOffsets alone: no record is read.

    The count between two times is the distance between the first offsets at or after them. It is
    exact if timestamps only grow, and close otherwise.
    """
    leaders = partition_leaders(topic, frozenset())
    width = max(1, (until_ms - since_ms) // buckets)
    moments = [since_ms + width * number for number in range(buckets + 1)]
    ends = await list_offsets(links, leaders, LATEST)
    found = await asyncio.gather(*(list_offsets(links, leaders, moment) for moment in moments))
    cuts: list[Mapping[PartitionKey, int]] = [
        {key: at.get(key, end) for key, end in ends.items()} for at in found
    ]
    return [
        {
            "from_ms": moments[number],
            "until_ms": moments[number + 1],
            "count": sum(max(0, cuts[number + 1][key] - cuts[number][key]) for key in ends),
        }
        for number in range(buckets)
    ]


def windows_back(ranges: Mapping[int, OffsetRange], size: int) -> list[dict[int, OffsetRange]]:
    """Windows of offsets from the end to the start, the first one `size` long in each partition.

    Each window is four times as long as the one before, so that a rare old match needs few reads.
    """
    windows = []
    ends = {index: end for index, (_, end) in ranges.items()}
    while any(ends[index] > start for index, (start, _) in ranges.items()):
        window = {
            index: (max(start, ends[index] - size), ends[index])
            for index, (start, _) in ranges.items()
            if ends[index] > start
        }
        windows.append(window)
        for index, (low, _) in window.items():
            ends[index] = low
        size *= 4
    return windows
