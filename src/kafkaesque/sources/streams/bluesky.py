"""Bluesky: Jetstream over WebSocket. Parsing is in rules/jetstream.py."""

from __future__ import annotations

from collections.abc import AsyncIterator

from kafkaesque.sources.rules import cursors, jetstream
from kafkaesque.sources.rules.frame_processor import StreamProgress
from kafkaesque.sources.rules.frames import MESSAGE, StreamFrame
from kafkaesque.sources.streams.endpoint import (
    Endpoint,
    now_ms,
    warn_of_lost_posts,
    websocket_frames,
)


class JetstreamStream:
    """All posts of Bluesky. Jetstream cannot filter by hashtag; the source does."""

    name = "posts"

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint

    async def frames(
        self, progress: StreamProgress | None, rewind_ms: int
    ) -> AsyncIterator[StreamFrame]:
        endpoint = self._endpoint
        query = {
            "wantedCollections": jetstream.COLLECTION,
            "maxMessageSizeBytes": str(endpoint.config.frame_max_bytes),
        }
        at = progress.cursor if progress is not None and progress.cursor else None
        cursor = cursors.jetstream_cursor(at, rewind_ms)
        if cursor is not None:
            query["cursor"] = str(cursor)
            warn_of_lost_posts("bluesky", cursors.jetstream_lost_ms(cursor, now_ms()))
        url = (endpoint.url / "subscribe").with_query(query)
        async with endpoint.websocket(url) as socket:
            async for item in websocket_frames(
                socket, MESSAGE, endpoint.config.frame_max_bytes, endpoint.idle_s
            ):
                yield item
