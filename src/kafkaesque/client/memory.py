"""The log in memory: the twin of `kafka` with the same ports, for tests and for trying things.

One event loop, one process, nothing kept. It holds to what services rely on: order per partition,
offsets without a gap, transactions that are seen whole or not at all, a new transactional writer
fences the old one, groups whose members share partitions and whose commits outlive a reader.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager

from kafkaesque.client.memory_reader import MemoryReader
from kafkaesque.client.memory_store import MemoryStore
from kafkaesque.client.ports import (
    Assignment,
    CommitPoint,
    LogError,
    LogReader,
    LogWriter,
    Record,
    Subscription,
    TransactionsUnsupported,
    WriterFenced,
    WriterOptions,
)
from kafkaesque.model.errors import check
from kafkaesque.model.ids import Offset, TopicPartition


class MemoryLog(MemoryStore):
    """See Log. `transactions=False` is a broker without them."""

    def __init__(self, *, transactions: bool = True) -> None:
        super().__init__()
        self.transactions = transactions

    @property
    def admin(self) -> MemoryLog:
        return self

    async def open_writer(self, options: WriterOptions = WriterOptions()) -> LogWriter:  # noqa: B008
        if options.transactional_id is not None and not self.transactions:
            raise TransactionsUnsupported("this log was made without transactions")
        return MemoryWriter(self, options.transactional_id)

    async def open_reader(self, what: Subscription | Assignment) -> LogReader:
        return MemoryReader(self, what)

    async def close(self) -> None:
        """Nothing is held open."""


class MemoryWriter:
    """See LogWriter."""

    def __init__(self, store: MemoryStore, transactional_id: str | None) -> None:
        self._store = store
        self._id = transactional_id
        self._epoch = 0 if transactional_id is None else store.next_epoch(transactional_id)
        self._turn = 0
        self._pending: list[tuple[TopicPartition, Record]] | None = None
        self._commits: list[tuple[MemoryReader, Mapping[TopicPartition, CommitPoint]]] = []
        self._transaction_turn = asyncio.Lock()

    @property
    def transactional(self) -> bool:
        return self._id is not None

    async def send(self, records: Iterable[Record]) -> Sequence[Offset]:
        self._check_epoch()
        placed = []
        for record in records:
            placed.append((self._store.place(record, self._turn), record))
            self._turn += 1
        if self._pending is not None:
            self._pending += placed
            return [Offset(-1)] * len(placed)
        if self.transactional:
            raise LogError("a transactional writer writes inside `async with transaction()` only")
        return await self._store.append(placed)

    def _check_epoch(self) -> None:
        if self._id is not None and self._store.current_epoch(self._id) != self._epoch:
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
            self._commits = []
            try:
                yield
                self._check_epoch()
                for reader, points in self._commits:
                    reader.commit_points(points)
                await self._store.append(pending)
            finally:
                self._pending = None

    async def send_offsets(
        self, reader: LogReader, points: Mapping[TopicPartition, CommitPoint] | None = None
    ) -> None:
        check(self._pending is not None, "offsets are sent inside a transaction")
        check(isinstance(reader, MemoryReader), "a memory writer commits for a memory reader")
        if isinstance(reader, MemoryReader):
            self._commits.append((reader, reader.points() if points is None else points))

    async def close(self) -> None:
        """Nothing is under way: `send` waits for its records."""
