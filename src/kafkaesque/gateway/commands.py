"""Writing to the log for the clients: what has come since the last write goes together.

One record at a time would cost a wake-up each; what waits while a write is under way is the next batch.
Several batches are under way at once; the writer keeps their order.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable

from kafkaesque.client.ports import Log, LogError, LogWriter, Record, WriterOptions

logger = logging.getLogger(__name__)

BATCH_RECORDS_MAX = 500
BATCHES_MAX = 8
WAITING_RECORDS_MAX = 20_000
LINGER_MS = 1
DELIVERY_TIMEOUT_MS = 20_000

Written = Callable[[LogError | None], None]
"""Told None once the record is durable; else it may or may not be in the log."""


class CommandWriter:
    """Bounded: `submit` refuses when too much waits."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._writer: LogWriter | None = None
        self._waiting: list[tuple[Record, Written]] = []
        self._wake = asyncio.Event()
        self._room = asyncio.Semaphore(BATCHES_MAX)
        self._under_way: set[asyncio.Task[None]] = set()
        self.task: asyncio.Task[None] | None = None
        self._pending = 0
        self._quiet = asyncio.Event()
        self._quiet.set()

    async def start(self) -> None:
        options = WriterOptions(linger_ms=LINGER_MS, delivery_timeout_ms=DELIVERY_TIMEOUT_MS)
        self._writer = await self._log.open_writer(options)
        self.task = asyncio.create_task(self._run(self._writer))

    def submit(self, record: Record, written: Written) -> bool:
        if self._pending >= WAITING_RECORDS_MAX:
            return False
        self._pending += 1
        self._quiet.clear()
        self._waiting.append((record, written))
        self._wake.set()
        return True

    @property
    def pending(self) -> int:
        return self._pending

    async def _run(self, writer: LogWriter) -> None:
        while True:
            await self._wake.wait()
            await self._room.acquire()
            batch = self._waiting[:BATCH_RECORDS_MAX]
            del self._waiting[:BATCH_RECORDS_MAX]
            if not self._waiting:
                self._wake.clear()
            task = asyncio.create_task(self._write(writer, batch))
            self._under_way.add(task)
            task.add_done_callback(self._under_way.discard)
            # It runs up to its first wait now, so that batches leave in their order.
            await asyncio.sleep(0)

    async def _write(self, writer: LogWriter, batch: list[tuple[Record, Written]]) -> None:
        failure: LogError | None = None
        try:
            await writer.send([record for record, _ in batch])
        except LogError as error:
            failure = error
            logger.warning("%d records: %s", len(batch), error)
        finally:
            self._room.release()
            self._pending -= len(batch)
        for _, written in batch:
            written(failure)
        if not self._pending:
            self._quiet.set()

    async def settle(self, timeout_s: float) -> None:
        """Wait, but not for ever, until nothing is under way."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._quiet.wait()

    async def stop(self) -> None:
        await self.settle(DELIVERY_TIMEOUT_MS / 1000)
        if self.task is not None:
            self.task.cancel()
            await asyncio.gather(self.task, return_exceptions=True)
        if self._writer is not None:
            await self._writer.close()
