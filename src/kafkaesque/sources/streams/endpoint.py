"""Shared by the streams of all networks: the endpoint, HTTP errors, and splitting responses into frames."""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

import aiohttp
from yarl import URL

from kafkaesque.model.ids import TimestampMs
from kafkaesque.sources.config import SourceConfig
from kafkaesque.sources.rules.backoff import FailureKind
from kafkaesque.sources.rules.frames import (
    OVERSIZED,
    EventSplitter,
    LineSplitter,
    StreamFrame,
    frame,
)

logger = logging.getLogger(__name__)

WEBSOCKET_SIZE_BYTES_MAX = 16 * 1024 * 1024
PAGE_SIZE_BYTES_MAX = 16 * 1024 * 1024
READ_BYTES = 65_536
PAGES_MAX = 1000
"""Pages per hashtag and gap: 40,000 posts. Posts beyond that are read by the stream or not at all."""
ERROR_BODY_LENGTH_MAX = 300
USER_AGENT = "kafkaesque-source/1"


class ConnectionFailure(Exception):
    """A connection failed or was lost. `asked_s` is how long the server asks to wait."""

    def __init__(self, kind: FailureKind, text: str, asked_s: float | None = None) -> None:
        super().__init__(text)
        self.kind = kind
        self.asked_s = asked_s


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A network's address, our session with it, and what to read from it."""

    url: URL
    session: aiohttp.ClientSession
    config: SourceConfig
    tags: Sequence[str]
    label: str
    """The label of our rules on X."""

    @property
    def idle_s(self) -> float:
        return self.config.idle_timeout_ms / 1000

    @asynccontextmanager
    async def websocket(self, url: URL) -> AsyncIterator[aiohttp.ClientWebSocketResponse]:
        try:
            async with self.session.ws_connect(
                url, max_msg_size=WEBSOCKET_SIZE_BYTES_MAX, heartbeat=20.0, autoping=True
            ) as socket:
                yield socket
        except aiohttp.WSServerHandshakeError as error:
            headers: Mapping[str, str] = error.headers or {}
            text = f"HTTP {error.status} {error.message}"
            raise http_failure(error.status, headers, text, time.time()) from None

    @asynccontextmanager
    async def get(self, url: URL) -> AsyncIterator[aiohttp.ClientResponse]:
        async with self.session.get(url) as response:
            await check_status(response, time.time())
            yield response


def new_session(token: str | None, config: SourceConfig) -> aiohttp.ClientSession:
    headers = {"User-Agent": USER_AGENT}
    if token is not None:
        headers["Authorization"] = f"Bearer {token}"
    timeout = aiohttp.ClientTimeout(
        total=None,
        sock_connect=config.connect_timeout_ms / 1000,
        sock_read=config.idle_timeout_ms / 1000,
    )
    return aiohttp.ClientSession(headers=headers, timeout=timeout)


async def read_page(response: aiohttp.ClientResponse) -> bytes:
    """The body of a REST page. Raises ConnectionFailure if it is too large."""
    body = b""
    while chunk := await response.content.read(READ_BYTES):
        body += chunk
        if len(body) > PAGE_SIZE_BYTES_MAX:
            raise ConnectionFailure(
                FailureKind.HTTP, f"the page is larger than {PAGE_SIZE_BYTES_MAX} bytes"
            )
    return body


def now_ms() -> TimestampMs:
    return TimestampMs(time.time_ns() // 1_000_000)


def warn_of_lost_posts(network: str, lost_ms: int) -> None:
    if lost_ms:
        logger.warning(
            "%s: the gap is longer than the network's retention; %.1f h are lost",
            network,
            lost_ms / 3.6e6,
        )


async def response_frames(
    response: aiohttp.ClientResponse, splitter: LineSplitter | EventSplitter
) -> AsyncIterator[StreamFrame]:
    async for data in response.content.iter_any():
        for item in splitter.feed(data):
            yield item


async def websocket_frames(
    socket: aiohttp.ClientWebSocketResponse, event: str, size_bytes_max: int, idle_s: float
) -> AsyncIterator[StreamFrame]:
    """Yields messages until the socket closes. Raises TimeoutError after `idle_s` without one."""
    while True:
        message = await socket.receive(timeout=idle_s)
        if message.type is aiohttp.WSMsgType.TEXT:
            data = message.data.encode()
        elif message.type is aiohttp.WSMsgType.BINARY:
            data = message.data
        elif message.type is aiohttp.WSMsgType.ERROR:
            raise ConnectionFailure(FailureKind.DROPPED, f"WebSocket error: {socket.exception()}")
        else:
            return
        if len(data) > size_bytes_max:
            yield StreamFrame(OVERSIZED, data[:size_bytes_max], len(data))
        else:
            yield frame(event, data)


async def check_status(response: aiohttp.ClientResponse, now_s: float) -> None:
    """Raises ConnectionFailure for a response that is an error."""
    if response.status < 400:
        return
    body = (await response.content.read(ERROR_BODY_LENGTH_MAX)).decode("utf-8", "replace")
    raise http_failure(response.status, response.headers, f"HTTP {response.status} {body}", now_s)


def http_failure(
    status: int, headers: Mapping[str, str], text: str, now_s: float
) -> ConnectionFailure:
    """Classifies an HTTP error status, with the wait that the server asks for."""
    if status in (420, 429):
        return ConnectionFailure(FailureKind.RATE_LIMITED, text, asked_wait_s(headers, now_s))
    if status in (401, 403):
        return ConnectionFailure(FailureKind.FORBIDDEN, text)
    return ConnectionFailure(FailureKind.HTTP, text, asked_wait_s(headers, now_s))


def asked_wait_s(headers: Mapping[str, str], now_s: float) -> float | None:
    """The wait from Retry-After in seconds or X's reset time, at most an hour."""
    seconds = headers.get("Retry-After", "")
    if seconds.isascii() and seconds.isdecimal() and len(seconds) < 10:
        return min(3600.0, float(seconds))
    reset = headers.get("x-rate-limit-reset", "")
    if reset.isascii() and reset.isdecimal() and len(reset) < 12 and float(reset) > now_s:
        return min(3600.0, float(reset) - now_s)
    return None
