"""Mastodon: the streaming API over WebSocket or SSE, and the REST timeline for gaps.

Parsing is in rules/mastodon.py.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import msgspec
from yarl import URL

from kafkaesque.sources.rules import cursors, mastodon
from kafkaesque.sources.rules.backoff import FailureKind
from kafkaesque.sources.rules.frame_processor import StreamProgress
from kafkaesque.sources.rules.frames import MESSAGE, EventSplitter, StreamFrame, frame
from kafkaesque.sources.rules.parsing import FrameError
from kafkaesque.sources.streams.endpoint import (
    PAGES_MAX,
    ConnectionFailure,
    Endpoint,
    read_page,
    response_frames,
    websocket_frames,
)

INSTANCE_SIZE_BYTES_MAX = 1024 * 1024


class MastodonStream:
    """Hashtags of one Mastodon server: connects first, then fills the gap by REST, then streams.

    In this order no post is missed between the two, and the deduplication window drops posts that
    arrive by both. The cursor advances only when the gap of every hashtag is filled.
    """

    def __init__(self, endpoint: Endpoint, tags: Sequence[str], name: str = "posts") -> None:
        self._endpoint = endpoint
        self._tags = tags
        self._name = name
        self._streaming: URL | None = None

    @property
    def name(self) -> str:
        return self._name

    async def frames(
        self, progress: StreamProgress | None, rewind_ms: int
    ) -> AsyncIterator[StreamFrame]:
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
                # The pages of the other hashtags were requested later, so they cover at least what the
                # first hashtag's pages cover. The converse need not hold.
                yield frame(mastodon.CAUGHT_UP, str(covered).encode())
            async for item in incoming:
                yield item

    @asynccontextmanager
    async def _connect(self) -> AsyncIterator[AsyncIterator[StreamFrame]]:
        endpoint = self._endpoint
        base = await self._streaming_host() / "api/v1/streaming"
        size_max = endpoint.config.frame_max_bytes
        if endpoint.config.mastodon_transport == "sse":
            async with endpoint.get((base / "hashtag").with_query(tag=self._tags[0])) as response:
                yield response_frames(response, EventSplitter(size_max))
            return
        async with endpoint.websocket(base) as socket:
            for tag in self._tags:
                subscribe = {"type": "subscribe", "stream": "hashtag", "tag": tag}
                await socket.send_str(msgspec.json.encode(subscribe).decode())
            yield websocket_frames(socket, MESSAGE, size_max, endpoint.idle_s)

    async def _streaming_host(self) -> URL:
        """The streaming host: large servers have a separate one, which the instance API names."""
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
                body = await read_page(response)
            try:
                largest = mastodon.largest_id(body)
            except FrameError as error:
                raise ConnectionFailure(FailureKind.HTTP, f"invalid page: {error}") from None
            if largest is None or largest <= least:
                return
            yield body, largest
            least = largest
