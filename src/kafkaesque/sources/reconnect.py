"""Keeps a network's stream connected and queues its frames.

A stream connects once and yields frames; it has no reconnect logic. `ReconnectingStream` waits as
`backoff` says between connections, and puts the frames into a bounded queue: a full queue applies
backpressure to the network.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from dataclasses import dataclass
from typing import Protocol

import aiohttp

from kafkaesque.model.ids import TimestampMs
from kafkaesque.sources.rules.backoff import FailureKind, ReconnectBackoff
from kafkaesque.sources.rules.cursors import Rewind
from kafkaesque.sources.rules.frame_processor import StreamProgress
from kafkaesque.sources.rules.frames import KEEPALIVE, StreamFrame, frame
from kafkaesque.sources.streams.endpoint import ERROR_BODY_LENGTH_MAX, ConnectionFailure

logger = logging.getLogger(__name__)

STEADY_SECONDS = 10.0
"""A connection that lasted this long counts as a success and resets the backoff."""


class Stream(Protocol):
    """One stream of a network."""

    @property
    def name(self) -> str: ...

    def frames(self, progress: StreamProgress | None, rewind_ms: int) -> AsyncIterator[StreamFrame]:
        """Connects, resumes `rewind_ms` before `progress`, and yields frames until the connection ends.

        Raises ConnectionFailure, aiohttp.ClientError or TimeoutError on failure.
        """
        ...


@dataclass(frozen=True, slots=True)
class QueuedFrame:
    """A frame in the queue. One with `processed` is a marker after the last frame of a connection."""

    stream: str
    frame: StreamFrame
    read_ms: TimestampMs
    processed: asyncio.Event | None = None
    """Set by the consumer when everything before the marker has been processed."""


class ReconnectingStream:
    """Keeps one stream connected until it is cancelled."""

    def __init__(
        self,
        stream: Stream,
        queue: asyncio.Queue[QueuedFrame],
        progress: Callable[[], StreamProgress | None],
        backoff: ReconnectBackoff,
        rewind: Rewind,
        steady_s: float = STEADY_SECONDS,
    ) -> None:
        self._stream = stream
        self._queue = queue
        self._progress = progress
        self._backoff = backoff
        self._rewind = rewind
        self._steady_s = steady_s
        self.connections = 0

    async def run(self) -> None:
        while True:
            started_s = time.monotonic()
            kind, text, asked_s = await self._read_once()
            if time.monotonic() - started_s >= self._steady_s:
                self._backoff.succeeded()
            wait_s = self._backoff.wait_s(kind, random.random(), asked_s)  # noqa: S311
            logger.warning(
                "%s: %s (%s); reconnecting in %.2f s",
                self._stream.name,
                kind.value,
                text,
                wait_s,
            )
            await asyncio.sleep(wait_s)
            await self._wait_until_processed()

    async def _wait_until_processed(self) -> None:
        """Waits until all frames read so far are processed, which determines where to resume. Otherwise a
        first connection that ended early would leave no cursor, and its gap would never be filled."""
        processed = asyncio.Event()
        await self._queue.put(
            QueuedFrame(self._stream.name, frame(KEEPALIVE, b""), TimestampMs(0), processed)
        )
        await processed.wait()

    async def _read_once(self) -> tuple[FailureKind, str, float | None]:
        connected = False
        self.connections += 1
        try:
            progress = self._progress()
            rewind_ms = self._rewind.before(progress.cursor if progress is not None else 0)
            generator = _generator(self._stream, progress, rewind_ms)
            async with contextlib.aclosing(generator) as frames:
                async for item in frames:
                    connected = True
                    read_ms = TimestampMs(time.time_ns() // 1_000_000)
                    await self._queue.put(QueuedFrame(self._stream.name, item, read_ms))
        except ConnectionFailure as error:
            return error.kind, str(error), error.asked_s
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            kind = FailureKind.DROPPED if connected else FailureKind.NETWORK
            return kind, f"{type(error).__name__}: {error}"[:ERROR_BODY_LENGTH_MAX], None
        return FailureKind.DROPPED, "the server ended the stream", None


async def _generator(
    stream: Stream, progress: StreamProgress | None, rewind_ms: int
) -> AsyncGenerator[StreamFrame, None]:
    """Wraps the stream's iterator in an async generator, which can be closed."""
    async for item in stream.frames(progress, rewind_ms):
        yield item
