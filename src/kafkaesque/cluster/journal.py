"""The controller's log on disk: commands are synced here before they change a table.

Operations run one after the other, so an operation sees all that was committed before it and
nothing else. Replication will replace the local log by Raft group 0.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

from kafkaesque.cluster.commands import Command, decode_command, encode_command
from kafkaesque.cluster.controller import Outcome
from kafkaesque.cluster.tables import Tables
from kafkaesque.model.clock import Clock
from kafkaesque.model.errors import StorageFailed, check
from kafkaesque.model.ids import LeaderEpoch, Offset
from kafkaesque.records.batch import read_header
from kafkaesque.records.codec import Record, decode_batch, encode_batch
from kafkaesque.storage.log import Log

T = TypeVar("T")

_READ_BYTES = 1 << 20


class Journal:
    """Commits commands and applies them to the tables."""

    __slots__ = ("_clock", "_epoch", "_is_broken", "_lock", "_log", "_under_way", "tables")

    def __init__(self, log: Log, clock: Clock, epoch: LeaderEpoch) -> None:
        self._log = log
        self._clock = clock
        self._epoch = epoch
        self._is_broken = False
        """The end of the log may hold a command that was refused: nothing may follow it."""
        self._lock = asyncio.Lock()
        self._under_way: set[asyncio.Task[Any]] = set()
        self.tables = Tables()

    def load(self) -> None:
        """Replay the whole log. Blocking; a damaged command is fatal (CorruptMessage)."""
        offset = self._log.log_start_offset
        while offset < self._log.log_end_offset:
            read = self._log.read(offset, _READ_BYTES, limit_offset=self._log.log_end_offset)
            position = 0
            while position < len(read.records):
                header = read_header(read.records, position)
                for record in decode_batch(read.records, position):
                    check(record.value is not None, "a command has a body")
                    self.tables.apply(decode_command(record.value or b""))
                position += header.size_bytes
                offset = header.next_offset

    async def submit(
        self,
        operation: Callable[[], Outcome[T]],
        reconcile: Callable[[Sequence[Command]], Awaitable[None]],
    ) -> T:
        """Run `operation` on the tables, commit its commands, apply them, then `reconcile`.

        What `operation` raises leaves everything as it was. Once begun it is finished, even if
        whoever asked is cancelled: a command in the log that the tables never saw would contradict
        the next one.
        """
        task = asyncio.create_task(self._submit(operation, reconcile))
        self._under_way.add(task)
        task.add_done_callback(self._ended)
        return await asyncio.shield(task)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._under_way.discard(task)
        if not task.cancelled():
            # Looked at here, in case whoever asked is gone: a refusal is no news then.
            task.exception()

    async def _submit(
        self,
        operation: Callable[[], Outcome[T]],
        reconcile: Callable[[Sequence[Command]], Awaitable[None]],
    ) -> T:
        async with self._lock:
            if self._is_broken:
                raise StorageFailed("the journal cannot be written: restart the broker")
            outcome = operation()
            if outcome.commands:
                await self._commit(outcome.commands)
                for command in outcome.commands:
                    self.tables.apply(command)
                await reconcile(outcome.commands)
            return outcome.answer

    async def close(self) -> None:
        """Wait for what is under way."""
        if self._under_way:
            await asyncio.wait(self._under_way)
        await asyncio.to_thread(self._log.close, clean=True)

    async def _commit(self, commands: Sequence[Command]) -> None:
        now_ms = self._clock.wall_ms()
        base_offset = self._log.log_end_offset
        records = [
            Record(Offset(base_offset + index), now_ms, None, encode_command(command))
            for index, command in enumerate(commands)
        ]
        batch = memoryview(encode_batch(records, base_offset=base_offset, leader_epoch=self._epoch))
        self._log.append(batch, read_header(batch), now_ms)
        await asyncio.to_thread(self._sync_or_take_back, base_offset)

    def _sync_or_take_back(self, base_offset: Offset) -> None:
        """A command that was refused must not be found by the next start."""
        try:
            self._log.sync()
        except StorageFailed:
            try:
                self._log.truncate_to(base_offset)
            except StorageFailed:
                self._is_broken = True
            raise
