"""What a network's driver is, and the loop that keeps one connected.

A driver connects once and yields frames; it holds no rule about when to connect again. `Follower` asks
`backoff` how long to wait, and puts frames into a bounded queue: a full queue makes the network wait.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

import aiohttp

from kafkaesque.model.ids import TimestampMs
from kafkaesque.sources.rules.backoff import Backoff, Trouble
from kafkaesque.sources.rules.cursors import Rewind
from kafkaesque.sources.rules.frames import KEEPALIVE, OVERSIZED, Frame, frame
from kafkaesque.sources.rules.intake import Progress

logger = logging.getLogger(__name__)

STEADY_SECONDS = 10.0
"""A connection that lasted this long was no failure: the next wait is the shortest again."""
WEBSOCKET_SIZE_BYTES_MAX = 16 * 1024 * 1024
ERROR_BODY_LENGTH_MAX = 300


class ConnectionTrouble(Exception):
    """A connection did not come up or did not stay; `asked_s` is how long the server says to wait."""

    def __init__(self, trouble: Trouble, text: str, asked_s: float | None = None) -> None:
        super().__init__(text)
        self.trouble = trouble
        self.asked_s = asked_s


class Stream(Protocol):
    """One stream of a network."""

    @property
    def name(self) -> str: ...

    def frames(self, progress: Progress | None, rewind_ms: int) -> AsyncIterator[Frame]:
        """Connect, taking up `rewind_ms` before `progress`, and yield frames until the end.

        ConnectionTrouble, aiohttp.ClientError or TimeoutError if it ends badly.
        """
        ...


@dataclass(frozen=True, slots=True)
class Delivery:
    """A frame on its way to the intake, or, with `taken`, a mark behind the last of a connection."""

    stream: str
    frame: Frame
    read_ms: TimestampMs
    taken: asyncio.Event | None = None


class Follower:
    """Keeps one stream connected until it is cancelled."""

    def __init__(
        self,
        stream: Stream,
        queue: asyncio.Queue[Delivery],
        progress: Callable[[], Progress | None],
        backoff: Backoff,
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
            trouble, text, asked_s = await self._follow_once()
            if time.monotonic() - started_s >= self._steady_s:
                self._backoff.succeeded()
            wait_s = self._backoff.wait_s(trouble, random.random(), asked_s)  # noqa: S311
            logger.warning(
                "%s: %s (%s); again in %.2f s", self._stream.name, trouble.value, text, wait_s
            )
            await asyncio.sleep(wait_s)
            await self._catch_up()

    async def _catch_up(self) -> None:
        """Wait until all that was read is judged: only then is it known where to take up again. A first
        connection that was cut at once would else leave no cursor, and a gap nobody asks for."""
        taken = asyncio.Event()
        await self._queue.put(
            Delivery(self._stream.name, frame(KEEPALIVE, b""), TimestampMs(0), taken)
        )
        await taken.wait()

    async def _follow_once(self) -> tuple[Trouble, str, float | None]:
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
                    await self._queue.put(Delivery(self._stream.name, item, read_ms))
        except ConnectionTrouble as error:
            return error.trouble, str(error), error.asked_s
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            trouble = Trouble.DROPPED if connected else Trouble.NETWORK
            return trouble, f"{type(error).__name__}: {error}"[:ERROR_BODY_LENGTH_MAX], None
        return Trouble.DROPPED, "the server ended the stream", None


async def _generator(
    stream: Stream, progress: Progress | None, rewind_ms: int
) -> AsyncGenerator[Frame, None]:
    """As an async generator, whatever the driver returns: those can be closed."""
    async for item in stream.frames(progress, rewind_ms):
        yield item


async def websocket_frames(
    socket: aiohttp.ClientWebSocketResponse, event: str, size_bytes_max: int, idle_s: float
) -> AsyncIterator[Frame]:
    """Text and binary messages until the socket closes. TimeoutError after `idle_s` of silence."""
    while True:
        message = await socket.receive(timeout=idle_s)
        if message.type is aiohttp.WSMsgType.TEXT:
            data = message.data.encode()
        elif message.type is aiohttp.WSMsgType.BINARY:
            data = message.data
        elif message.type is aiohttp.WSMsgType.ERROR:
            raise ConnectionTrouble(Trouble.DROPPED, f"broken WebSocket: {socket.exception()}")
        else:
            return
        if len(data) > size_bytes_max:
            yield Frame(OVERSIZED, data[:size_bytes_max], len(data))
        else:
            yield frame(event, data)


async def check_status(response: aiohttp.ClientResponse, now_s: float) -> None:
    """ConnectionTrouble unless the answer is a success."""
    if response.status < 400:
        return
    body = (await response.content.read(ERROR_BODY_LENGTH_MAX)).decode("utf-8", "replace")
    raise refusal(response.status, response.headers, f"HTTP {response.status} {body}", now_s)


def refusal(status: int, headers: Mapping[str, str], text: str, now_s: float) -> ConnectionTrouble:
    """The class of trouble of an HTTP status, and how long the server asks to be left alone."""
    if status in (420, 429):
        return ConnectionTrouble(Trouble.RATE_LIMITED, text, asked_wait_s(headers, now_s))
    if status in (401, 403):
        return ConnectionTrouble(Trouble.FORBIDDEN, text)
    return ConnectionTrouble(Trouble.HTTP, text, asked_wait_s(headers, now_s))


def asked_wait_s(headers: Mapping[str, str], now_s: float) -> float | None:
    """From Retry-After in seconds, or X's time of reset; never more than an hour."""
    seconds = headers.get("Retry-After", "")
    if seconds.isascii() and seconds.isdecimal() and len(seconds) < 10:
        return min(3600.0, float(seconds))
    reset = headers.get("x-rate-limit-reset", "")
    if reset.isascii() and reset.isdecimal() and len(reset) < 12 and float(reset) > now_s:
        return min(3600.0, float(reset) - now_s)
    return None
