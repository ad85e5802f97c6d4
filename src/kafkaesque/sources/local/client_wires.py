"""The five ways in which a client of the local server is written to."""

from __future__ import annotations

from collections.abc import Callable, Collection

from aiohttp import web

from kafkaesque.sources.local import wires
from kafkaesque.sources.local.timeline import Timeline
from kafkaesque.sources.rules.generator import Entry, What
from kafkaesque.sources.rules.hashtags import distinct
from kafkaesque.sources.rules.x import Rule


class _Socket:
    keepalive = b""
    goodbye = b""

    def __init__(self, timeline: Timeline, socket: web.WebSocketResponse) -> None:
        self._timeline = timeline
        self._socket = socket

    async def send(self, data: bytes) -> None:
        await self._socket.send_str(data.decode())

    def broken(self, data: bytes) -> bytes:
        return data


class _Stream:
    keepalive = b"\r\n"
    goodbye = b""

    def __init__(self, timeline: Timeline, response: web.StreamResponse) -> None:
        self._timeline = timeline
        self._response = response

    async def send(self, data: bytes) -> None:
        await self._response.write(data)

    def broken(self, data: bytes) -> bytes:
        return data + b"\r\n"


class JetstreamWire(_Socket):
    """Everything: the client filters."""

    def render(self, entry: Entry) -> bytes | None:
        return wires.jetstream_frame(self._timeline, entry)


class MessagesWire(_Socket):
    """Mastodon by WebSocket; `tags` may change while it runs."""

    def __init__(self, timeline: Timeline, socket: web.WebSocketResponse, tags: set[str]) -> None:
        super().__init__(timeline, socket)
        self.tags = tags

    def render(self, entry: Entry) -> bytes | None:
        matching = self.tags.intersection(distinct(entry.post.tags))
        if not matching:
            return None
        return wires.mastodon_message(self._timeline, entry, ["hashtag", min(matching)])


class EventsWire(_Stream):
    """Mastodon by server-sent events."""

    keepalive = b":thump\n"

    def __init__(self, timeline: Timeline, response: web.StreamResponse, tag: str) -> None:
        super().__init__(timeline, response)
        self._tag = tag

    def render(self, entry: Entry) -> bytes | None:
        if self._tag not in distinct(entry.post.tags):
            return None
        event, payload = wires.mastodon_event(self._timeline, entry)
        return b"event: %s\ndata: %s\n\n" % (event.encode(), payload)

    def broken(self, data: bytes) -> bytes:
        return b"event: update\ndata: %s\n\n" % data


class FilteredWire(_Stream):
    """X's filtered stream: posts that match a rule; never a deletion."""

    goodbye = wires.X_DISCONNECT

    def __init__(
        self,
        timeline: Timeline,
        response: web.StreamResponse,
        rules: Callable[[], Collection[Rule]],
    ) -> None:
        super().__init__(timeline, response)
        self._rules = rules

    def render(self, entry: Entry) -> bytes | None:
        if entry.what is What.DELETE:
            return None
        tags = set(distinct(entry.post.tags))
        matching = [rule for rule in self._rules() if tags.intersection(_tags_of(rule))]
        if not matching:
            return None
        named = [{"id": rule.id, "tag": rule.tag} for rule in matching]
        return wires.x_line(self._timeline, entry, named)


class ComplianceWire(_Stream):
    """X's compliance stream: deletions, of posts that the client may never have seen."""

    def render(self, entry: Entry) -> bytes | None:
        if entry.what is not What.DELETE:
            return None
        return wires.x_deletion(self._timeline, entry)


def _tags_of(rule: Rule) -> tuple[str, ...]:
    return distinct(rule.value.split(" OR "))
