"""Writes records of many clients to the log in batches.

One record at a time would cost a wake-up each. Records that arrive during a write form the next batch. Several
batches are in flight at once; the log writer keeps their order.
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

OnWritten = Callable[[LogError | None], None]
"""Called with None once the record is durable. After an error it may or may not be in the log."""


class BatchingWriter:
    """Bounded: `submit` returns False if too many records wait."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._writer: LogWriter | None = None
        self._waiting: list[tuple[Record, OnWritten]] = []
        self._wake = asyncio.Event()
        self._slots = asyncio.Semaphore(BATCHES_MAX)
        self._in_flight: set[asyncio.Task[None]] = set()
        self.task: asyncio.Task[None] | None = None
        self._pending = 0
        self._idle = asyncio.Event()
        self._idle.set()

    async def start(self) -> None:
        options = WriterOptions(linger_ms=LINGER_MS, delivery_timeout_ms=DELIVERY_TIMEOUT_MS)
        self._writer = await self._log.open_writer(options)
        self.task = asyncio.create_task(self._run(self._writer))

    def submit(self, record: Record, on_written: OnWritten) -> bool:
        if self._pending >= WAITING_RECORDS_MAX:
            return False
        self._pending += 1
        self._idle.clear()
        self._waiting.append((record, on_written))
        self._wake.set()
        return True

    @property
    def pending(self) -> int:
        return self._pending

    async def _run(self, writer: LogWriter) -> None:
        while True:
            await self._wake.wait()
            await self._slots.acquire()
            batch = self._waiting[:BATCH_RECORDS_MAX]
            del self._waiting[:BATCH_RECORDS_MAX]
            if not self._waiting:
                self._wake.clear()
            task = asyncio.create_task(self._write(writer, batch))
            self._in_flight.add(task)
            task.add_done_callback(self._in_flight.discard)
            # The task runs up to its first wait now, so that batches are sent in order.
            await asyncio.sleep(0)

    async def _write(self, writer: LogWriter, batch: list[tuple[Record, OnWritten]]) -> None:
        failure: LogError | None = None
        try:
            await writer.send([record for record, _ in batch])
        except LogError as error:
            failure = error
            logger.warning("write failed: records=%d: %s", len(batch), error)
        finally:
            self._slots.release()
            self._pending -= len(batch)
        for _, on_written in batch:
            on_written(failure)
        if not self._pending:
            self._idle.set()

    async def settle(self, timeout_s: float) -> None:
        """Waits until nothing is in flight, at most `timeout_s`."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._idle.wait()

    async def stop(self) -> None:
        await self.settle(DELIVERY_TIMEOUT_MS / 1000)
        if self.task is not None:
            self.task.cancel()
            await asyncio.gather(self.task, return_exceptions=True)
        if self._writer is not None:
            await self._writer.close()
