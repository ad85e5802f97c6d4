"""Encodes entries of the generator in the formats of the three networks. Pure.

The formats follow the networks' documentation, including details that break careless parsers: HTML in
Mastodon, facets counted in UTF-8 bytes in Bluesky, indices in code points in X.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

import msgspec

from kafkaesque.sources.local.rules.timeline import Timeline
from kafkaesque.sources.rules.generator import SyntheticPost, TimelineEntry, TimelineEntryKind

HOST = "social.local"
_encode = msgspec.json.encode
_TAG = re.compile(r"#([^\s!#]+)")


def jetstream_frame(timeline: Timeline, entry: TimelineEntry) -> bytes:
    post = entry.post
    commit: dict[str, Any] = {
        "rev": post.record_key,
        "operation": "delete" if entry.what is TimelineEntryKind.DELETE else "create",
        "collection": "app.bsky.feed.post",
        "rkey": post.record_key,
    }
    if entry.what is not TimelineEntryKind.DELETE:
        commit |= {"record": _record(timeline, post), "cid": f"bafyreisynthetic{post.number}"}
    return _encode(
        {"did": post.did, "time_us": timeline.time_us(entry), "kind": "commit", "commit": commit}
    )


def _record(timeline: Timeline, post: SyntheticPost) -> dict[str, Any]:
    facets = []
    for match in _TAG.finditer(post.text):
        start = len(post.text[: match.start()].encode())
        facets.append(
            {
                "index": {"byteStart": start, "byteEnd": start + len(match.group().encode())},
                "features": [{"$type": "app.bsky.richtext.facet#tag", "tag": match.group(1)}],
            }
        )
    return {
        "$type": "app.bsky.feed.post",
        "createdAt": _iso(timeline.created_ms(post)),
        "langs": [post.language],
        "text": post.text,
        "facets": facets,
    }


def mastodon_event(timeline: Timeline, entry: TimelineEntry) -> tuple[str, bytes]:
    """The event's name and payload."""
    if entry.what is TimelineEntryKind.DELETE:
        return "delete", str(entry.post.status_id).encode()
    return "update", _encode(mastodon_status(timeline, entry.post))


def mastodon_message(timeline: Timeline, entry: TimelineEntry, streams: Iterable[str]) -> bytes:
    """The same event over WebSocket: the payload is JSON in a string."""
    event, payload = mastodon_event(timeline, entry)
    return _encode({"stream": list(streams), "event": event, "payload": payload.decode()})


def mastodon_status(timeline: Timeline, post: SyntheticPost) -> dict[str, Any]:
    text = _TAG.sub(
        lambda match: (
            f'<a href="https://{HOST}/tags/{match.group(1)}" class="mention hashtag" rel="tag">'
            f"#<span>{match.group(1)}</span></a>"
        ),
        html.escape(post.text, quote=False),
    )
    name = f"author{post.author}"
    return {
        "id": str(post.status_id),
        "created_at": _iso(timeline.created_ms(post)),
        "edited_at": None,
        "in_reply_to_id": None,
        "sensitive": False,
        "visibility": "public",
        "language": post.language,
        "uri": f"https://{HOST}/users/{name}/statuses/{post.status_id}",
        "url": f"https://{HOST}/@{name}/{post.status_id}",
        "content": f"<p>{text}</p>",
        "reblog": None,
        "account": {"id": str(post.author), "username": name, "acct": name},
        "mentions": [],
        "tags": [{"name": tag, "url": f"https://{HOST}/tags/{tag}"} for tag in post.tags],
    }


def x_post(timeline: Timeline, post: SyntheticPost) -> dict[str, Any]:
    hashtags = [
        {"start": match.start(), "end": match.end(), "tag": match.group(1)}
        for match in _TAG.finditer(post.text)
    ]
    return {
        "id": str(post.x_id),
        "text": post.text,
        "author_id": str(1_000_000 + post.author),
        "created_at": _iso(timeline.created_ms(post)),
        "lang": post.language,
        "entities": {"hashtags": hashtags},
        "edit_history_tweet_ids": [str(post.x_id)],
    }


def x_line(timeline: Timeline, entry: TimelineEntry, rules: Iterable[dict[str, str]]) -> bytes:
    """A line of the filtered stream. `rules` holds id and tag of the matching rules."""
    data = x_post(timeline, entry.post)
    return _encode({"data": data, "matching_rules": list(rules)}) + b"\r\n"


def x_deletion(timeline: Timeline, entry: TimelineEntry) -> bytes:
    """A line of the compliance stream."""
    tweet = {"id": str(entry.post.x_id), "author_id": str(1_000_000 + entry.post.author)}
    event_at = _iso(timeline.time_us(entry) // 1000)
    return _encode({"data": {"delete": {"tweet": tweet, "event_at": event_at}}}) + b"\r\n"


X_DISCONNECT = (
    _encode(
        {
            "errors": [
                {
                    "title": "operational-disconnect",
                    "disconnect_type": "UpstreamOperationalDisconnect",
                    "detail": "This stream has been disconnected upstream for operational reasons.",
                    "type": "https://api.x.com/2/problems/operational-disconnect",
                }
            ]
        }
    )
    + b"\r\n"
)


def _iso(at_ms: int) -> str:
    moment = datetime.fromtimestamp(at_ms / 1000, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
