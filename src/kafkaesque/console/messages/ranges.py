"""Where a query's ranges lie: what the partitions hold, cut to where the query begins and ends."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Final

from kafkaesque.console.cluster.links import KafkaLinks
from kafkaesque.console.cluster.queries import EARLIEST, LATEST, list_offsets
from kafkaesque.console.messages.query import InvalidQuery, MessageQuery
from kafkaesque.console.rules.view import Document, PartitionKey, TopicView

BUCKETS: Final = 60

Range = tuple[int, int]
"""Offsets from the first to before the second."""


def places_of(topic: TopicView, partitions: frozenset[int]) -> dict[PartitionKey, int]:
    """Leaders of the partitions asked for (none: all)."""
    unknown = partitions - {item.index for item in topic.partitions}
    if unknown:
        raise InvalidQuery(f"{topic.name} has no partition {min(unknown)}")
    return {
        (topic.name, item.index): item.leader
        for item in topic.partitions
        if not partitions or item.index in partitions
    }


async def bounds_of(links: KafkaLinks, topic: TopicView, query: MessageQuery) -> dict[int, Range]:
    """The range to read of each partition that answers."""
    leaders = places_of(topic, query.partitions)
    starts, ends = await asyncio.gather(
        list_offsets(links, leaders, EARLIEST), list_offsets(links, leaders, LATEST)
    )
    bounds = {place: (starts[place], end) for place, end in ends.items() if place in starts}
    start = query.start
    if start.kind == "time":
        at = await list_offsets(links, leaders, start.number)
        bounds = {place: (at.get(place, end), end) for place, (_, end) in bounds.items()}
    elif start.kind == "offset":
        bounds = {
            place: (min(max(low, start.number), end), end) for place, (low, end) in bounds.items()
        }
    elif start.kind == "last":
        bounds = {
            place: (max(low, end - start.number), end) for place, (low, end) in bounds.items()
        }
    if query.end_ms is not None:
        until = await list_offsets(links, leaders, query.end_ms)
        bounds = {
            place: (low, max(low, min(end, until.get(place, end))))
            for place, (low, end) in bounds.items()
        }
    return {index: found for (_, index), found in bounds.items()}


async def histogram(
    links: KafkaLinks, topic: TopicView, since_ms: int, until_ms: int, buckets: int = BUCKETS
) -> list[Document]:
    """Records by time, counted by offsets alone: no record is read.

    Between two moments lie the offsets between the first record at or after each (ListOffsets);
    exact for topics whose times only grow, close for others.
    """
    leaders = places_of(topic, frozenset())
    width = max(1, (until_ms - since_ms) // buckets)
    moments = [since_ms + width * number for number in range(buckets + 1)]
    ends = await list_offsets(links, leaders, LATEST)
    found = await asyncio.gather(*(list_offsets(links, leaders, moment) for moment in moments))
    cuts: list[Mapping[PartitionKey, int]] = [
        {place: at.get(place, end) for place, end in ends.items()} for at in found
    ]
    return [
        {
            "from_ms": moments[number],
            "until_ms": moments[number + 1],
            "count": sum(max(0, cuts[number + 1][place] - cuts[number][place]) for place in ends),
        }
        for number in range(buckets)
    ]


def windows_back(bounds: Mapping[int, Range], size: int) -> list[dict[int, Range]]:
    """The newest `size` records of each partition, then those before, ...: each window is larger,
    so that a rare match far back costs few turns."""
    windows = []
    ends = {index: end for index, (_, end) in bounds.items()}
    while any(ends[index] > start for index, (start, _) in bounds.items()):
        window = {
            index: (max(start, ends[index] - size), ends[index])
            for index, (start, _) in bounds.items()
            if ends[index] > start
        }
        windows.append(window)
        for index, (low, _) in window.items():
            ends[index] = low
        size *= 4
    return windows
