"""The log in memory: the twin of `kafka` with the same ports, for tests and for trying things.

One event loop, one process, nothing kept. It holds to what services rely on: order per partition,
offsets without a gap, transactions that are seen whole or not at all, a new transactional writer
fences the old one, groups whose members share partitions and whose commits outlive a reader.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
import zlib
from collections import defaultdict
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field

from kafkaesque.client.ports import (
    Assignment,
    DeliveryFailed,
    LogError,
    LogReader,
    LogWriter,
    Received,
    Record,
    Span,
    Start,
    Subscription,
    TopicUnknown,
    TransactionsUnsupported,
    WriterFenced,
    WriterOptions,
)
from kafkaesque.events.topics import TopicSpec
from kafkaesque.model.errors import check
from kafkaesque.model.ids import (
    NO_TIMESTAMP,
    Offset,
    PartitionIndex,
    TimestampMs,
    TopicPartition,
)


@dataclass(slots=True)
class _Topic:
    spec: TopicSpec
    partitions: list[list[Received]]


@dataclass(slots=True)
class _Group:
    committed: dict[TopicPartition, Offset] = field(default_factory=dict)
    members: list[MemoryReader] = field(default_factory=list)


class MemoryLog:
    """See Log. `transactions=False` is a broker without them."""

    def __init__(self, *, transactions: bool = True) -> None:
        self.transactions = transactions
        self._topics: dict[str, _Topic] = {}
        self._groups: defaultdict[str, _Group] = defaultdict(_Group)
        self._epochs: defaultdict[str, int] = defaultdict(int)
        self._grown = asyncio.Condition()
        self.failure: LogError | None = None
        """Set it, and every send fails with it, until it is None again."""

    @property
    def admin(self) -> MemoryLog:
        return self

    async def ensure_topics(self, topics: Iterable[TopicSpec]) -> Sequence[str]:
        created = []
        for spec in topics:
            if spec.name not in self._topics:
                self._topics[spec.name] = _Topic(spec, [[] for _ in range(spec.partitions)])
                created.append(spec.name)
        return created

    async def spans(self, topic: str) -> Mapping[TopicPartition, Span]:
        return {
            TopicPartition(topic, PartitionIndex(number)): Span(Offset(0), Offset(len(records)))
            for number, records in enumerate(self._topic(topic).partitions)
        }

    async def open_writer(self, options: WriterOptions = WriterOptions()) -> LogWriter:  # noqa: B008
        if options.transactional_id is not None and not self.transactions:
            raise TransactionsUnsupported("this log was made without transactions")
        return MemoryWriter(self, options.transactional_id)

    async def open_reader(self, what: Subscription | Assignment) -> LogReader:
        return MemoryReader(self, what)

    async def close(self) -> None:
        """Nothing is held open."""

    def records(self, topic: str) -> list[Received]:
        """All records, partition by partition: for tests."""
        return [record for part in self._topic(topic).partitions for record in part]

    # -- what its writers and readers do --------------------------------------------------------

    def _topic(self, name: str) -> _Topic:
        topic = self._topics.get(name)
        if topic is None:
            raise TopicUnknown(f"there is no topic {name}")
        return topic

    def place(self, record: Record, turn: int) -> TopicPartition:
        """Where `record` goes; keyless records take turns."""
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
            records = self._topic(place.topic).partitions[place.partition]
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

    def group(self, name: str) -> _Group:
        return self._groups[name]

    def records_from(self, place: TopicPartition, offset: Offset, count: int) -> list[Received]:
        return self._topic(place.topic).partitions[place.partition][offset : offset + count]

    async def wait_for_growth(self, timeout_s: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s), self._grown:
                await self._grown.wait()


class MemoryWriter:
    """See LogWriter."""

    def __init__(self, log: MemoryLog, transactional_id: str | None) -> None:
        self._log = log
        self._id = transactional_id
        self._epoch = 0 if transactional_id is None else log.next_epoch(transactional_id)
        self._turn = 0
        self._pending: list[tuple[TopicPartition, Record]] | None = None
        self._offsets: list[tuple[MemoryReader, Mapping[TopicPartition, Offset]]] = []
        self._transaction_turn = asyncio.Lock()

    @property
    def transactional(self) -> bool:
        return self._id is not None

    async def send(self, records: Iterable[Record]) -> Sequence[Offset]:
        self._check_epoch()
        placed = []
        for record in records:
            placed.append((self._log.place(record, self._turn), record))
            self._turn += 1
        if self._pending is not None:
            self._pending += placed
            return [Offset(-1)] * len(placed)
        if self.transactional:
            raise LogError("a transactional writer writes inside `async with transaction()` only")
        return await self._log.append(placed)

    def _check_epoch(self) -> None:
        if self._id is not None and self._log.current_epoch(self._id) != self._epoch:
            raise WriterFenced(f"a newer writer {self._id!r} has taken over")

    def transaction(self) -> AbstractAsyncContextManager[None]:
        if not self.transactional:
            raise TransactionsUnsupported("this writer was opened without a transactional id")
        return self._transaction()

    @contextlib.asynccontextmanager
    async def _transaction(self) -> AsyncIterator[None]:
        async with self._transaction_turn:
            self._check_epoch()
            pending: list[tuple[TopicPartition, Record]] = []
            self._pending = pending
            self._offsets = []
            try:
                yield
                self._check_epoch()
                await self._log.append(pending)
                for reader, positions in self._offsets:
                    reader.commit_positions(positions)
            finally:
                self._pending = None

    async def send_offsets(self, reader: LogReader) -> None:
        check(self._pending is not None, "offsets are sent inside a transaction")
        check(isinstance(reader, MemoryReader), "a memory writer commits for a memory reader")
        if isinstance(reader, MemoryReader):
            self._offsets.append((reader, await reader.positions()))

    async def close(self) -> None:
        """Nothing is under way: `send` waits for its records."""


class MemoryReader:
    """See LogReader. Members of a group get every n-th partition; who joins or leaves deals anew."""

    def __init__(self, log: MemoryLog, what: Subscription | Assignment) -> None:
        self._log = log
        self._what = what
        self._next: dict[TopicPartition, Offset] = {}
        self._closed = False
        if isinstance(what, Assignment):
            self._next = {place: Offset(max(0, at)) for place, at in what.offsets.items()}
        else:
            self._members.append(self)
            for member in self._members:
                member._next = {}

    @property
    def _members(self) -> list[MemoryReader]:
        check(isinstance(self._what, Subscription), "only a subscription has a group")
        return (
            self._log.group(self._what.group).members
            if isinstance(self._what, Subscription)
            else []
        )

    async def read(self, count_max: int = 500, wait_s: float = 1.0) -> Sequence[Received]:
        records = await self._take(count_max)
        if not records and wait_s > 0:
            await self._log.wait_for_growth(wait_s)
            records = await self._take(count_max)
        return records

    async def _take(self, count_max: int) -> list[Received]:
        taken: list[Received] = []
        for place, offset in (await self._places()).items():
            records = self._log.records_from(place, offset, count_max - len(taken))
            taken += records
            self._next[place] = Offset(offset + len(records))
        return taken

    async def _places(self) -> Mapping[TopicPartition, Offset]:
        what = self._what
        if isinstance(what, Assignment):
            return self._next
        places = [place for topic in what.topics for place in sorted(await self._log.spans(topic))]
        turn, count = self._members.index(self), len(self._members)
        committed = self._log.group(what.group).committed
        for place in places[turn::count]:
            if place not in self._next:
                end = (await self._log.spans(place.topic))[place].end
                default = Offset(0) if what.start is Start.BEGINNING else end
                self._next[place] = committed.get(place, default)
        return self._next

    async def positions(self) -> Mapping[TopicPartition, Offset]:
        return dict(self._next)

    async def commit(self) -> None:
        if isinstance(self._what, Assignment):
            raise LogError("only the reader of a subscription belongs to a group")
        self.commit_positions(self._next)

    def commit_positions(self, positions: Mapping[TopicPartition, Offset]) -> None:
        if isinstance(self._what, Subscription):
            self._log.group(self._what.group).committed.update(positions)

    async def close(self) -> None:
        if not self._closed and isinstance(self._what, Subscription):
            members = self._members
            members.remove(self)
            for member in members:
                member._next = {}
        self._closed = True
