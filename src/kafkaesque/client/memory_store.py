"""State of the in-memory log: topics with records, groups with members and commits.

`memory` and `memory_reader` implement the ports over it. Only `wait_for_growth` waits.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
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
    slots: list[Received | None] = field(default_factory=list)
    """By offset. None is not readable: a transaction's marker, or an aborted record."""
    start: Offset = field(default=Offset(0))
    begun: dict[int, Offset] = field(default_factory=dict)
    """First offset of each open transaction, by the transaction's number."""

    @property
    def stable(self) -> Offset:
        """Kafka's last stable offset: where readers of committed records stop."""
        return min(self.begun.values(), default=Offset(len(self.slots)))

    def readable(self, start: Offset) -> list[Received]:
        return [slot for slot in self.slots[start : self.stable] if slot is not None]


class MemoryTransaction:
    """One transaction. Its records are in the log at once; its end makes them readable or removes them."""

    def __init__(self, number: int) -> None:
        self._number = number
        self._taken: list[tuple[_Partition, Offset]] = []

    def add(self, partition: _Partition, offset: Offset) -> None:
        partition.begun.setdefault(self._number, offset)
        self._taken.append((partition, offset))

    def end(self, *, committed: bool) -> None:
        """Writes a marker to every partition that it wrote to; a marker takes an offset. Idempotent."""
        for partition, offset in self._taken:
            if not committed:
                partition.slots[offset] = None
            if partition.begun.pop(self._number, None) is not None:
                partition.slots.append(None)
        self._taken = []


@dataclass(slots=True)
class _Topic:
    spec: TopicSpec
    id: TopicId
    partitions: list[_Partition]


@dataclass(slots=True)
class MemoryGroup:
    """A consumer group. A partition has one owner; the next one waits until it is revoked."""

    committed: dict[TopicPartition, CommitPoint] = field(default_factory=dict)
    members: list[object] = field(default_factory=list)
    owners: dict[TopicPartition, object] = field(default_factory=dict)

    def leave(self, member: object) -> None:
        if member in self.members:
            self.members.remove(member)
        self.owners = {place: owner for place, owner in self.owners.items() if owner is not member}

    def share(self, member: object, places: Sequence[TopicPartition]) -> frozenset[TopicPartition]:
        """The partitions of a member: every n-th. Recomputed when members join or leave."""
        return frozenset(places[self.members.index(member) :: len(self.members)])


class MemoryStore:
    """Topics, groups and writer epochs of one log. Also its LogAdmin."""

    def __init__(self) -> None:
        self._topics: dict[str, _Topic] = {}
        self._groups: defaultdict[str, MemoryGroup] = defaultdict(MemoryGroup)
        self._epochs: defaultdict[str, int] = defaultdict(int)
        self._transactions: dict[str, MemoryTransaction] = {}
        self._transaction_numbers = itertools.count()
        self._grown = asyncio.Condition()
        self.failure: LogError | None = None
        """If set, every send raises it."""

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
            TopicPartition(topic, PartitionIndex(number)): Span(partition.start, partition.stable)
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
        """Every readable record, partition by partition."""
        partitions = self._topic(topic).partitions
        return [record for part in partitions for record in part.readable(part.start)]

    def trim(self, place: TopicPartition, start: Offset) -> None:
        """Imitates retention: records before `start` can no longer be read."""
        self._topic(place.topic).partitions[place.partition].start = start

    def delete_topic(self, name: str) -> None:
        del self._topics[name]

    # -- for writers and readers -------------------------------------------------------------------

    def _topic(self, name: str) -> _Topic:
        topic = self._topics.get(name)
        if topic is None:
            raise TopicUnknown(f"there is no topic {name}")
        return topic

    def place(self, record: Record, turn: int) -> TopicPartition:
        """The partition of `record`, by librdkafka's rule; records without key go round robin."""
        count = len(self._topic(record.topic).partitions)
        if record.partition is not None:
            if not 0 <= record.partition < count:
                raise DeliveryFailed(f"{record.topic} has no partition {record.partition}")
            return TopicPartition(record.topic, record.partition)
        number = turn if record.key is None else zlib.crc32(record.key)
        return TopicPartition(record.topic, PartitionIndex(number % count))

    async def append(
        self,
        placed: Iterable[tuple[TopicPartition, Record]],
        transaction: MemoryTransaction | None = None,
    ) -> list[Offset]:
        self.check_working()
        offsets = []
        now_ms = TimestampMs(time.time_ns() // 1_000_000)
        for place, record in placed:
            partition = self._topic(place.topic).partitions[place.partition]
            offset = Offset(len(partition.slots))
            partition.slots.append(_received(place, offset, record, now_ms))
            if transaction is not None:
                transaction.add(partition, offset)
            offsets.append(offset)
        if transaction is None:
            await self._notify_readers()
        return offsets

    def check_working(self) -> None:
        if self.failure is not None:
            raise self.failure

    async def _notify_readers(self) -> None:
        async with self._grown:
            self._grown.notify_all()

    def begin(self, transactional_id: str) -> MemoryTransaction:
        transaction = MemoryTransaction(next(self._transaction_numbers))
        self._transactions[transactional_id] = transaction
        return transaction

    async def commit(self, transaction: MemoryTransaction) -> None:
        transaction.end(committed=True)
        await self._notify_readers()

    async def abort(self, transaction: MemoryTransaction) -> None:
        transaction.end(committed=False)
        # Records of others after its first one are readable now.
        await self._notify_readers()

    def next_epoch(self, transactional_id: str) -> int:
        """The epoch of a new writer of that id. Aborts the open transaction of the old one."""
        before = self._transactions.pop(transactional_id, None)
        if before is not None:
            before.end(committed=False)
        self._epochs[transactional_id] += 1
        return self._epochs[transactional_id]

    def current_epoch(self, transactional_id: str) -> int:
        return self._epochs[transactional_id]

    def group(self, name: str) -> MemoryGroup:
        return self._groups[name]

    def span(self, place: TopicPartition) -> Span:
        partition = self._topic(place.topic).partitions[place.partition]
        return Span(partition.start, partition.stable)

    def records_from(self, place: TopicPartition, offset: Offset, count: int) -> list[Received]:
        partition = self._topic(place.topic).partitions[place.partition]
        return partition.readable(offset)[:count]

    async def wait_for_growth(self, timeout_s: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s), self._grown:
                await self._grown.wait()


def _received(
    place: TopicPartition, offset: Offset, record: Record, now_ms: TimestampMs
) -> Received:
    return Received(
        topic=place.topic,
        partition=place.partition,
        offset=offset,
        key=record.key,
        value=record.value,
        headers=record.headers,
        timestamp_ms=now_ms if record.timestamp_ms == NO_TIMESTAMP else record.timestamp_ms,
    )
