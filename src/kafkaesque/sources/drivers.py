"""Connections to Bluesky and Mastodon, and what all drivers share: URLs, headers, requests. Thin;
every rule is in a pure module. X has `x_drivers.py`."""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

import aiohttp
import msgspec
from yarl import URL

from kafkaesque.model.ids import TimestampMs
from kafkaesque.sources.config import SourceConfig
from kafkaesque.sources.rules import cursors, jetstream, mastodon
from kafkaesque.sources.rules.backoff import Trouble
from kafkaesque.sources.rules.frames import MESSAGE, EventSplitter, Frame, LineSplitter, frame
from kafkaesque.sources.rules.intake import Progress
from kafkaesque.sources.rules.parsing import FrameError
from kafkaesque.sources.streams import (
    WEBSOCKET_SIZE_BYTES_MAX,
    ConnectionTrouble,
    check_status,
    refusal,
    websocket_frames,
)

logger = logging.getLogger(__name__)

READ_BYTES = 65_536
PAGE_SIZE_BYTES_MAX = 16 * 1024 * 1024
INSTANCE_SIZE_BYTES_MAX = 1024 * 1024
PAGES_MAX = 1000
"""Of one hashtag in one gap: 40,000 posts. What lies beyond is read by the stream or not at all."""
USER_AGENT = "kafkaesque-source/1"


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where a network is, who we are there, and how it is read."""

    url: URL
    session: aiohttp.ClientSession
    config: SourceConfig
    tags: Sequence[str]
    label: str
    """Names our rules on X."""

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
            raise refusal(error.status, headers, text, time.time()) from None

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


class JetstreamStream:
    """All posts of Bluesky; the hashtags are picked out here, since Jetstream cannot."""

    name = "posts"

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint

    async def frames(self, progress: Progress | None, rewind_ms: int) -> AsyncIterator[Frame]:
        endpoint = self._endpoint
        query = {
            "wantedCollections": jetstream.COLLECTION,
            "maxMessageSizeBytes": str(endpoint.config.frame_max_bytes),
        }
        at = progress.cursor if progress is not None and progress.cursor else None
        cursor = cursors.jetstream_cursor(at, rewind_ms)
        if cursor is not None:
            query["cursor"] = str(cursor)
            warn_of_loss("bluesky", cursors.jetstream_lost_ms(cursor, now_ms()))
        url = (endpoint.url / "subscribe").with_query(query)
        async with endpoint.websocket(url) as socket:
            async for item in websocket_frames(
                socket, MESSAGE, endpoint.config.frame_max_bytes, endpoint.idle_s
            ):
                yield item


class MastodonStream:
    """Hashtags of one Mastodon server: connected first, then the gap by REST, then the stream.

    In that order nothing falls between the two; what comes by both is dropped by the window. The
    cursor moves only when the gap of every hashtag is filled.
    """

    def __init__(self, endpoint: Endpoint, tags: Sequence[str], name: str = "posts") -> None:
        self._endpoint = endpoint
        self._tags = tags
        self._name = name
        self._streaming: URL | None = None

    @property
    def name(self) -> str:
        return self._name

    async def frames(self, progress: Progress | None, rewind_ms: int) -> AsyncIterator[Frame]:
        async with self._connect() as incoming:
            at = progress.cursor if progress is not None and progress.cursor else None
            least = cursors.mastodon_min_id(at, rewind_ms)
            if least is not None:
                covered = least
                for tag in self._tags:
                    async for page, largest in self._pages(tag, least):
                        yield frame(mastodon.PAGE, page)
                        if tag == self._tags[0]:
                            covered = largest
                # What the first hashtag's pages reach to, those of the others were asked for later and
                # reach beyond; what a later page reaches to, an earlier one may not.
                yield frame(mastodon.CAUGHT_UP, str(covered).encode())
            async for item in incoming:
                yield item

    @asynccontextmanager
    async def _connect(self) -> AsyncIterator[AsyncIterator[Frame]]:
        endpoint = self._endpoint
        base = await self._streaming_host() / "api/v1/streaming"
        size_max = endpoint.config.frame_max_bytes
        if endpoint.config.mastodon_transport == "sse":
            async with endpoint.get((base / "hashtag").with_query(tag=self._tags[0])) as response:
                yield split(response, EventSplitter(size_max))
            return
        async with endpoint.websocket(base) as socket:
            for tag in self._tags:
                subscribe = {"type": "subscribe", "stream": "hashtag", "tag": tag}
                await socket.send_str(msgspec.json.encode(subscribe).decode())
            yield websocket_frames(socket, MESSAGE, size_max, endpoint.idle_s)

    async def _streaming_host(self) -> URL:
        """Large servers stream from a host of its own, which the instance names."""
        if self._streaming is None:
            body = b""
            async with self._endpoint.session.get(self._endpoint.url / "api/v2/instance") as answer:
                if answer.status == 200:
                    body = await answer.content.read(INSTANCE_SIZE_BYTES_MAX)
            named = mastodon.streaming_url(body, secure=self._endpoint.url.scheme == "https")
            self._streaming = self._endpoint.url if named is None else URL(named)
        return self._streaming

    async def _pages(self, tag: str, least: int) -> AsyncIterator[tuple[bytes, int]]:
        """Pages of statuses with an id above `least`, oldest first."""
        for _ in range(PAGES_MAX):
            url = self._endpoint.url / "api/v1/timelines/tag" / tag
            query = {"min_id": str(least), "limit": "40"}
            async with self._endpoint.get(url.with_query(query)) as response:
                body = await response.content.read(PAGE_SIZE_BYTES_MAX)
                while chunk := await response.content.read(READ_BYTES):
                    body += chunk
                    if len(body) > PAGE_SIZE_BYTES_MAX:
                        raise ConnectionTrouble(Trouble.HTTP, "a page that does not end")
            try:
                largest = mastodon.largest_id(body)
            except FrameError as error:
                raise ConnectionTrouble(Trouble.HTTP, f"not a page: {error}") from None
            if largest is None or largest <= least:
                return
            yield body, largest
            least = largest


def now_ms() -> TimestampMs:
    return TimestampMs(time.time_ns() // 1_000_000)


def warn_of_loss(network: str, lost_ms: int) -> None:
    if lost_ms:
        logger.warning(
            "%s: the gap is longer than the network keeps; %.1f h are lost",
            network,
            lost_ms / 3.6e6,
        )


async def split(
    response: aiohttp.ClientResponse, splitter: LineSplitter | EventSplitter
) -> AsyncIterator[Frame]:
    async for data in response.content.iter_any():
        for item in splitter.feed(data):
            yield item
