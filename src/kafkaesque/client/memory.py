"""`MemoryLog`: the in-memory twin of `KafkaLog`, for tests and experiments.

One event loop, one process, nothing persistent. It has the properties that services rely on: order per
partition; transactions that are visible whole or not at all and whose markers take an offset; a new
transactional writer fences the old one; groups whose members share partitions and whose commits outlive
a reader.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager

from kafkaesque.client.memory_reader import MemoryReader
from kafkaesque.client.memory_store import MemoryStore, MemoryTransaction
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
    """See Log. `transactions=False` imitates a broker without transactions."""

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
        """Nothing to close."""


class MemoryWriter:
    """See LogWriter."""

    def __init__(self, store: MemoryStore, transactional_id: str | None) -> None:
        self._store = store
        self._id = transactional_id
        self._epoch = 0 if transactional_id is None else store.next_epoch(transactional_id)
        self._turn = 0
        self._open_transaction: MemoryTransaction | None = None
        self._commits: list[tuple[MemoryReader, Mapping[TopicPartition, CommitPoint]]] = []
        self._transaction_lock = asyncio.Lock()

    @property
    def transactional(self) -> bool:
        return self._id is not None

    async def send(self, records: Iterable[Record]) -> Sequence[Offset]:
        self._check_epoch()
        placed = []
        for record in records:
            placed.append((self._store.place(record, self._turn), record))
            self._turn += 1
        if self.transactional and self._open_transaction is None:
            raise LogError("a transactional writer can send only inside `async with transaction()`")
        return await self._store.append(placed, self._open_transaction)

    def _check_epoch(self) -> None:
        if self._id is not None and self._store.current_epoch(self._id) != self._epoch:
            raise WriterFenced(f"a newer writer {self._id!r} has taken over")

    def transaction(self) -> AbstractAsyncContextManager[None]:
        if self._id is None:
            raise TransactionsUnsupported("this writer was opened without a transactional id")
        return self._transaction(self._id)

    @contextlib.asynccontextmanager
    async def _transaction(self, transactional_id: str) -> AsyncIterator[None]:
        async with self._transaction_lock:
            self._check_epoch()
            transaction = self._store.begin(transactional_id)
            self._open_transaction = transaction
            self._commits = []
            try:
                yield
                self._check_epoch()
                self._store.check_working()
                for reader, points in self._commits:
                    reader.commit_points(points)
                await self._store.commit(transaction)
            finally:
                self._open_transaction = None
                # No effect after a commit.
                await self._store.abort(transaction)

    async def send_offsets(
        self, reader: LogReader, points: Mapping[TopicPartition, CommitPoint] | None = None
    ) -> None:
        check(self._open_transaction is not None, "offsets are sent inside a transaction")
        check(isinstance(reader, MemoryReader), "a memory writer needs a memory reader")
        if isinstance(reader, MemoryReader):
            self._commits.append((reader, reader.points() if points is None else points))

    async def close(self) -> None:
        """Nothing is in flight: `send` waits for its records."""
