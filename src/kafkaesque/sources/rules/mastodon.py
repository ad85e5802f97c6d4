"""Parses Mastodon's events (SSE or WebSocket) and pages of the REST timeline. Pure.

Protocol: docs.joinmastodon.org/methods/streaming and /methods/timelines. The cursor is the largest status
id read; ids are numbers whose upper bits are milliseconds (`Mastodon::Snowflake`).
"""

from __future__ import annotations

import html
import re

import msgspec

from kafkaesque.events.social import Post, PostDeleted, PostEdited
from kafkaesque.model.ids import TimestampMs
from kafkaesque.sources.rules.frames import StreamFrame, frame
from kafkaesque.sources.rules.hashtags import distinct, tags_in_text
from kafkaesque.sources.rules.parsing import (
    FrameError,
    Parsed,
    bounded,
    decode,
    languages,
    number,
    time_ms,
)

NETWORK = "mastodon"
PAGE = "page"
"""Event name of a page of the REST timeline: a JSON array of statuses."""
CAUGHT_UP = "caught up"
"""Event name of a marker: every page up to this id has been read."""
_SEQUENCE_BITS = 16

_BREAK = re.compile(r"<br\s*/?>|</p>\s*<p[^>]*>", re.IGNORECASE)
_MARKUP = re.compile(r"<[^>]*>")


class _Account(msgspec.Struct):
    acct: str
    url: str | None = None


class _Tag(msgspec.Struct):
    name: str


class _Status(msgspec.Struct):
    id: str
    account: _Account
    content: str = ""
    created_at: str | None = None
    edited_at: str | None = None
    language: str | None = None
    tags: list[_Tag] = []
    url: str | None = None
    uri: str | None = None
    in_reply_to_id: str | None = None
    reblog: msgspec.Raw = msgspec.Raw()


class _Message(msgspec.Struct):
    event: str = ""
    payload: str | None = None
    error: str | None = None


class _Urls(msgspec.Struct):
    streaming: str


class _Configuration(msgspec.Struct):
    urls: _Urls


class _Instance(msgspec.Struct):
    configuration: _Configuration


_instances = msgspec.json.Decoder(_Instance)
_statuses = msgspec.json.Decoder(_Status)
_pages = msgspec.json.Decoder(list[_Status])
_messages = msgspec.json.Decoder(_Message)


def unwrap(data: bytes) -> StreamFrame:
    """Unwraps a WebSocket message: the event's name, and its payload, which is JSON in a string."""
    message = decode(_messages, data)
    if message.error is not None:
        raise FrameError(f"error from the server: {message.error[:200]}")
    if not message.event:
        raise FrameError("message without an event")
    return frame(message.event, (message.payload or "").encode())


def streaming_url(instance: bytes, *, secure: bool) -> str | None:
    """The streaming URL that an instance names; None if it names none, or if using it would send a token
    unencrypted although the instance is reached over TLS."""
    try:
        named = decode(_instances, instance).configuration.urls.streaming
    except FrameError:
        return None
    scheme, separator, rest = named.partition("://")
    http = {"wss": "https", "https": "https", "ws": "http", "http": "http"}.get(scheme)
    if http is None or not separator or (secure and http != "https"):
        return None
    return f"{http}://{rest.rstrip('/')}"


def parse(given: StreamFrame, read_ms: TimestampMs) -> Parsed:
    match given.event:
        case "update":
            return _posts([decode(_statuses, given.data)], read_ms)
        case "page":
            # A page of one hashtag does not advance the cursor: the others may not be read as far.
            return Parsed(_posts(decode(_pages, given.data), read_ms).events)
        case "caught up":
            return Parsed(cursor=number(given.data.decode(), "status id"))
        case "status.update":
            return _edited(decode(_statuses, given.data), read_ms)
        case "delete":
            text = given.data.decode("utf-8", "replace").strip().strip('"')
            number(text, "status id")
            return Parsed((PostDeleted(network=NETWORK, id=text, deleted_ms=read_ms),))
        case "message":
            return parse(unwrap(given.data), read_ms)
        case _:
            # Notifications, filters, announcements and future kinds are not about posts.
            return Parsed()


def id_before(status_id: int, rewind_ms: int) -> int:
    """The smallest id of a status created up to `rewind_ms` before this one.

    Statuses from other servers get ids by their own creation time, so one may arrive with a smaller id
    than earlier arrivals.
    """
    return max(0, status_id - (rewind_ms << _SEQUENCE_BITS))


def largest_id(page: bytes) -> int | None:
    """The largest id on a page, from which the next page continues; None if the page is empty."""
    return max((number(status.id, "status id") for status in decode(_pages, page)), default=None)


def plain_text(content: str) -> str:
    """The plain text of a status, whose content is HTML."""
    return html.unescape(_MARKUP.sub("", _BREAK.sub("\n", content)))


def _posts(statuses: list[_Status], read_ms: TimestampMs) -> Parsed:
    # A boost is not a post: the boosted status arrives separately.
    own = [status for status in statuses if not _is_boost(status)]
    cursor = max((number(status.id, "status id") for status in statuses), default=None)
    return Parsed(tuple(_post(status, read_ms) for status in own), cursor)


def _is_boost(status: _Status) -> bool:
    return bytes(status.reblog) not in (b"", b"null")


def _post(status: _Status, read_ms: TimestampMs) -> Post:
    text = plain_text(bounded(status.content))
    return Post(
        network=NETWORK,
        id=status.id,
        author=status.account.acct,
        text=text,
        tags=_tags(status, text),
        languages=languages([status.language] if status.language else None),
        created_ms=time_ms(status.created_at, read_ms),
        seen_ms=read_ms,
        url=status.url or status.uri,
        reply_to=status.in_reply_to_id,
    )


def _edited(status: _Status, read_ms: TimestampMs) -> Parsed:
    number(status.id, "status id")
    text = plain_text(bounded(status.content))
    edited = PostEdited(
        network=NETWORK,
        id=status.id,
        text=text,
        tags=_tags(status, text),
        languages=languages([status.language] if status.language else None),
        edited_ms=time_ms(status.edited_at, read_ms),
        seen_ms=read_ms,
    )
    return Parsed((edited,))


def _tags(status: _Status, text: str) -> tuple[str, ...]:
    return distinct([*(tag.name for tag in status.tags), *tags_in_text(text)])
