"""The clients of the local server: how each network writes to a client, and the faults injected.

A connection sends entries until the client leaves, a fault disconnects it, or it stalls.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Protocol

from aiohttp import web

from kafkaesque.sources.local.feed import Feed
from kafkaesque.sources.local.rules import formats
from kafkaesque.sources.local.rules.timeline import Timeline
from kafkaesque.sources.rules.generator import TimelineEntry, TimelineEntryKind
from kafkaesque.sources.rules.hashtags import distinct
from kafkaesque.sources.rules.x import XRule

KEEPALIVE_SECONDS = 15.0


@dataclass(slots=True)
class ServerFaults:
    """Injected faults. Zero disables a fault. Counts are per connection, in entries sent."""

    disconnect_every: int = 0
    """Disconnects after n new entries. Replayed entries do not count, so that every client progresses."""
    malformed_every: int = 0
    """Sends an invalid frame before every n-th entry."""
    oversized_every: int = 0
    """Sends a frame of `oversized_bytes` before every n-th entry."""
    oversized_bytes: int = 2_000_000
    refuse_status: int = 0
    """Answers every connection with this HTTP status."""
    refuse_count: int = 0
    """Number of connections to refuse before serving again; 0 with a status refuses all."""
    search_status: int = 0
    """Answers X's recent search with this HTTP status: not every access level has it."""
    stall_after: int = 0
    """Sends nothing after n entries, not even keep-alives, and stays connected."""


@dataclass(slots=True)
class LocalServerCounts:
    """Counters since the server started."""

    connections: int = 0
    refused: int = 0
    disconnected: int = 0
    entries: int = 0
    pages: int = 0
    open: int = 0
    last_tick: int = -1
    """The last tick sent to any client."""
    cue: int = 0
    """Requests to disconnect all clients."""


class ClientWriter(Protocol):
    """Writes entries to one client in the format of its network."""

    async def send(self, data: bytes) -> None: ...

    def render(self, entry: TimelineEntry) -> bytes | None:
        """The frame of an entry; None if the client did not request it."""
        ...

    @property
    def keepalive(self) -> bytes:
        """The keep-alive of the protocol; empty if the transport has its own."""
        ...

    @property
    def goodbye(self) -> bytes:
        """The message before an injected disconnect; empty for none."""
        ...

    def broken(self, data: bytes) -> bytes:
        """A frame around invalid bytes."""
        ...


class LocalConnection:
    """One client. `run` sends entries and returns when the connection is to be closed."""

    def __init__(
        self, feed: Feed, faults: ServerFaults, counts: LocalServerCounts, writer: ClientWriter
    ) -> None:
        self._feed = feed
        self._faults = faults
        self._counts = counts
        self._writer = writer
        self._sent = 0
        self._fresh = 0
        self._last_tick = counts.last_tick

    async def run(self, tick: int, until: int | None = None) -> None:
        """Sends entries from `tick`; a replay ends before tick `until`, None has no end."""
        cue = self._counts.cue
        self._counts.connections += 1
        self._counts.open += 1
        quiet_s = asyncio.get_running_loop().time()
        try:
            async for entries in self._feed.follow(tick):
                if cue != self._counts.cue or await self._serve(entries or ()):
                    await self._disconnect()
                    return
                now_s = asyncio.get_running_loop().time()
                if entries:
                    tick += 1
                    quiet_s = now_s
                    if until is not None and tick >= until:
                        return
                elif now_s - quiet_s > KEEPALIVE_SECONDS and self._writer.keepalive:
                    await self._writer.send(self._writer.keepalive)
                    quiet_s = now_s
        finally:
            self._counts.open -= 1

    async def _serve(self, entries: list[TimelineEntry] | tuple[()]) -> bool:
        """Sends entries; returns whether to disconnect now."""
        for entry in entries:
            frame = self._writer.render(entry)
            if frame is None:
                continue
            await self._inject_faults()
            await self._writer.send(frame)
            self._sent += 1
            self._counts.entries += 1
            self._fresh += entry.tick > self._last_tick
            self._counts.last_tick = max(self._counts.last_tick, entry.tick)
            every = self._faults.disconnect_every
            if every and self._fresh >= every:
                return True
        return False

    async def _inject_faults(self) -> None:
        faults = self._faults
        number = self._sent + 1
        if faults.malformed_every and number % faults.malformed_every == 0:
            await self._writer.send(self._writer.broken(b'{"torn": '))
        if faults.oversized_every and number % faults.oversized_every == 0:
            await self._writer.send(self._writer.broken(b"x" * faults.oversized_bytes))
        if faults.stall_after and number > faults.stall_after:
            await asyncio.Event().wait()

    async def _disconnect(self) -> None:
        self._counts.disconnected += 1
        if self._writer.goodbye:
            await self._writer.send(self._writer.goodbye)


class _SocketWriter:
    """Base of the writers over WebSocket."""

    keepalive = b""
    goodbye = b""

    def __init__(self, timeline: Timeline, socket: web.WebSocketResponse) -> None:
        self._timeline = timeline
        self._socket = socket

    async def send(self, data: bytes) -> None:
        await self._socket.send_str(data.decode())

    def broken(self, data: bytes) -> bytes:
        return data


class _ResponseWriter:
    """Base of the writers over a streaming HTTP response."""

    keepalive = b"\r\n"
    goodbye = b""

    def __init__(self, timeline: Timeline, response: web.StreamResponse) -> None:
        self._timeline = timeline
        self._response = response

    async def send(self, data: bytes) -> None:
        await self._response.write(data)

    def broken(self, data: bytes) -> bytes:
        return data + b"\r\n"


class JetstreamWriter(_SocketWriter):
    """Bluesky: all entries; the client filters."""

    def render(self, entry: TimelineEntry) -> bytes | None:
        return formats.jetstream_frame(self._timeline, entry)


class MastodonSocketWriter(_SocketWriter):
    """Mastodon over WebSocket. `tags` may change during the connection."""

    def __init__(self, timeline: Timeline, socket: web.WebSocketResponse, tags: set[str]) -> None:
        super().__init__(timeline, socket)
        self.tags = tags

    def render(self, entry: TimelineEntry) -> bytes | None:
        matching = self.tags.intersection(distinct(entry.post.tags))
        if not matching:
            return None
        return formats.mastodon_message(self._timeline, entry, ["hashtag", min(matching)])


class MastodonEventWriter(_ResponseWriter):
    """Mastodon over server-sent events."""

    keepalive = b":thump\n"

    def __init__(self, timeline: Timeline, response: web.StreamResponse, tag: str) -> None:
        super().__init__(timeline, response)
        self._tag = tag

    def render(self, entry: TimelineEntry) -> bytes | None:
        if self._tag not in distinct(entry.post.tags):
            return None
        event, payload = formats.mastodon_event(self._timeline, entry)
        return b"event: %s\ndata: %s\n\n" % (event.encode(), payload)

    def broken(self, data: bytes) -> bytes:
        return b"event: update\ndata: %s\n\n" % data


class XFilteredWriter(_ResponseWriter):
    """X's filtered stream: posts that match a rule, without deletions."""

    goodbye = formats.X_DISCONNECT

    def __init__(
        self,
        timeline: Timeline,
        response: web.StreamResponse,
        rules: Callable[[], Collection[XRule]],
    ) -> None:
        super().__init__(timeline, response)
        self._rules = rules

    def render(self, entry: TimelineEntry) -> bytes | None:
        if entry.what is TimelineEntryKind.DELETE:
            return None
        tags = set(distinct(entry.post.tags))
        matching = [rule for rule in self._rules() if tags.intersection(_tags_of(rule))]
        if not matching:
            return None
        named = [{"id": rule.id, "tag": rule.tag} for rule in matching]
        return formats.x_line(self._timeline, entry, named)


class XComplianceWriter(_ResponseWriter):
    """X's compliance stream: deletions of all posts, also of those the client never received."""

    def render(self, entry: TimelineEntry) -> bytes | None:
        if entry.what is not TimelineEntryKind.DELETE:
            return None
        return formats.x_deletion(self._timeline, entry)


def _tags_of(rule: XRule) -> tuple[str, ...]:
    return distinct(rule.value.split(" OR "))
