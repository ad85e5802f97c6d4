"""What the log in memory holds: topics with their records, groups with their members and commits.

`memory` and `memory_reader` are the ports over it. Nothing here waits, but for growth.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
import zlib
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from uuid import uuid4

from kafkaesque.client.ports import (
    CommitPoint,
    DeliveryFailed,
    LogError,
    Received,
    Record,
    Span,
    TopicUnknown,
)
from kafkaesque.events.topics import TopicSpec
from kafkaesque.model.ids import (
    NO_TIMESTAMP,
    Offset,
    PartitionIndex,
    TimestampMs,
    TopicId,
    TopicPartition,
)


@dataclass(slots=True)
class _Partition:
    records: list[Received] = field(default_factory=list)
    start: Offset = field(default=Offset(0))


@dataclass(slots=True)
class _Topic:
    spec: TopicSpec
    id: TopicId
    partitions: list[_Partition]


@dataclass(slots=True)
class MemoryGroup:
    """A place has one owner: who is dealt it later waits until the owner has let it go."""

    committed: dict[TopicPartition, CommitPoint] = field(default_factory=dict)
    members: list[object] = field(default_factory=list)
    owners: dict[TopicPartition, object] = field(default_factory=dict)

    def leave(self, member: object) -> None:
        if member in self.members:
            self.members.remove(member)
        self.owners = {place: owner for place, owner in self.owners.items() if owner is not member}

    def share(self, member: object, places: Sequence[TopicPartition]) -> frozenset[TopicPartition]:
        """Members get every n-th partition; who joins or leaves has them dealt anew."""
        return frozenset(places[self.members.index(member) :: len(self.members)])


class MemoryStore:
    """Topics, groups and writers' epochs of one log. Also its LogAdmin."""

    def __init__(self) -> None:
        self._topics: dict[str, _Topic] = {}
        self._groups: defaultdict[str, MemoryGroup] = defaultdict(MemoryGroup)
        self._epochs: defaultdict[str, int] = defaultdict(int)
        self._grown = asyncio.Condition()
        self.failure: LogError | None = None
        """Set it, and every send fails with it, until it is None again."""

    async def ensure_topics(self, topics: Iterable[TopicSpec]) -> Sequence[str]:
        created = []
        for spec in topics:
            if spec.name not in self._topics:
                partitions = [_Partition() for _ in range(spec.partitions)]
                self._topics[spec.name] = _Topic(spec, TopicId(uuid4()), partitions)
                created.append(spec.name)
        return created

    async def spans(self, topic: str) -> Mapping[TopicPartition, Span]:
        return {
            TopicPartition(topic, PartitionIndex(number)): Span(
                partition.start, Offset(len(partition.records))
            )
            for number, partition in enumerate(self._topic(topic).partitions)
        }

    async def topic_ids(self, names: Iterable[str]) -> Mapping[str, TopicId]:
        return {name: self._topic(name).id for name in names}

    async def partition_count(self, topic: str) -> int:
        return len(self._topic(topic).partitions)

    def places(self, topics: Iterable[str]) -> list[TopicPartition]:
        return [
            TopicPartition(name, PartitionIndex(number))
            for name in topics
            for number in range(len(self._topic(name).partitions))
        ]

    # -- for tests ---------------------------------------------------------------------------------

    def records(self, topic: str) -> list[Received]:
        """All records, partition by partition."""
        return [
            record
            for part in self._topic(topic).partitions
            for record in part.records[part.start :]
        ]

    def trim(self, place: TopicPartition, start: Offset) -> None:
        """Retention: what stands before `start` can no longer be read."""
        self._topic(place.topic).partitions[place.partition].start = start

    def delete_topic(self, name: str) -> None:
        del self._topics[name]

    # -- what writers and readers do ---------------------------------------------------------------

    def _topic(self, name: str) -> _Topic:
        topic = self._topics.get(name)
        if topic is None:
            raise TopicUnknown(f"there is no topic {name}")
        return topic

    def place(self, record: Record, turn: int) -> TopicPartition:
        """Where `record` goes, by librdkafka's rule; keyless records take turns."""
        count = len(self._topic(record.topic).partitions)
        if record.partition is not None:
            if not 0 <= record.partition < count:
                raise DeliveryFailed(f"{record.topic} has no partition {record.partition}")
            return TopicPartition(record.topic, record.partition)
        number = turn if record.key is None else zlib.crc32(record.key)
        return TopicPartition(record.topic, PartitionIndex(number % count))

    async def append(self, placed: Iterable[tuple[TopicPartition, Record]]) -> list[Offset]:
        if self.failure is not None:
            raise self.failure
        offsets = []
        now_ms = TimestampMs(time.time_ns() // 1_000_000)
        for place, record in placed:
            records = self._topic(place.topic).partitions[place.partition].records
            offsets.append(Offset(len(records)))
            records.append(
                Received(
                    topic=place.topic,
                    partition=place.partition,
                    offset=offsets[-1],
                    key=record.key,
                    value=record.value,
                    headers=record.headers,
                    timestamp_ms=(
                        now_ms if record.timestamp_ms == NO_TIMESTAMP else record.timestamp_ms
                    ),
                )
            )
        async with self._grown:
            self._grown.notify_all()
        return offsets

    def next_epoch(self, transactional_id: str) -> int:
        self._epochs[transactional_id] += 1
        return self._epochs[transactional_id]

    def current_epoch(self, transactional_id: str) -> int:
        return self._epochs[transactional_id]

    def group(self, name: str) -> MemoryGroup:
        return self._groups[name]

    def span(self, place: TopicPartition) -> Span:
        partition = self._topic(place.topic).partitions[place.partition]
        return Span(partition.start, Offset(len(partition.records)))

    def records_from(self, place: TopicPartition, offset: Offset, count: int) -> list[Received]:
        return self._topic(place.topic).partitions[place.partition].records[offset : offset + count]

    async def wait_for_growth(self, timeout_s: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s), self._grown:
                await self._grown.wait()
