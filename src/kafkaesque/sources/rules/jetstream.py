"""Parses JSON frames of Bluesky's Jetstream. Pure.

Protocol: bluesky-social/jetstream docs/README.md 5.1 (`/subscribe`). The cursor is the frame's `time_us`.
Kinds other than `commit`, and collections other than posts, only advance the cursor.
"""

from __future__ import annotations

import msgspec

from kafkaesque.events.social import Post, PostDeleted, PostEdited
from kafkaesque.model.ids import TimestampMs
from kafkaesque.sources.rules.frames import StreamFrame
from kafkaesque.sources.rules.hashtags import distinct, tags_in_text
from kafkaesque.sources.rules.parsing import (
    FrameError,
    Parsed,
    bounded,
    decode,
    identity,
    languages,
    time_ms,
)

NETWORK = "bluesky"
COLLECTION = "app.bsky.feed.post"
_TAG_FEATURE = "app.bsky.richtext.facet#tag"
_TIME_US_MAX = 2**53


class _Feature(msgspec.Struct):
    type: str = msgspec.field(name="$type", default="")
    tag: str | None = None


class _Facet(msgspec.Struct):
    features: list[_Feature] = []


class _Reference(msgspec.Struct):
    uri: str | None = None


class _Reply(msgspec.Struct):
    parent: _Reference | None = None


class _Record(msgspec.Struct):
    text: str = ""
    createdAt: str | None = None
    langs: list[str] | None = None
    facets: list[_Facet] | None = None
    tags: list[str] | None = None
    reply: _Reply | None = None


class _Commit(msgspec.Struct):
    operation: str
    collection: str
    rkey: str
    record: msgspec.Raw = msgspec.Raw()


class _Event(msgspec.Struct):
    did: str
    time_us: int
    kind: str
    commit: _Commit | None = None


_events = msgspec.json.Decoder(_Event)
_records = msgspec.json.Decoder(_Record)


def parse(frame: StreamFrame, read_ms: TimestampMs) -> Parsed:
    event = decode(_events, frame.data)
    if not 0 < event.time_us < _TIME_US_MAX:
        raise FrameError(f"invalid time_us {event.time_us}")
    commit = event.commit
    if event.kind != "commit" or commit is None or commit.collection != COLLECTION:
        return Parsed(cursor=event.time_us)
    seen_ms = TimestampMs(event.time_us // 1000)
    uri = identity(f"at://{event.did}/{commit.collection}/{commit.rkey}", "the AT URI")
    if commit.operation == "delete":
        deleted = PostDeleted(network=NETWORK, id=uri, deleted_ms=seen_ms)
        return Parsed((deleted,), event.time_us)
    if commit.operation not in ("create", "update"):
        return Parsed(cursor=event.time_us)
    if not bytes(commit.record):
        raise FrameError(f"{commit.operation} without a record")
    record = decode(_records, commit.record)
    if commit.operation == "update":
        return Parsed((_edited(uri, record, seen_ms),), event.time_us)
    return Parsed((_post(uri, event.did, commit.rkey, record, seen_ms),), event.time_us)


def _post(uri: str, did: str, rkey: str, record: _Record, seen_ms: TimestampMs) -> Post:
    parent = record.reply.parent if record.reply is not None else None
    return Post(
        network=NETWORK,
        id=uri,
        author=did,
        text=bounded(record.text),
        tags=_tags(record),
        languages=languages(record.langs),
        created_ms=time_ms(record.createdAt, seen_ms),
        seen_ms=seen_ms,
        url=f"https://bsky.app/profile/{did}/post/{rkey}",
        reply_to=parent.uri if parent is not None else None,
    )


def _edited(uri: str, record: _Record, seen_ms: TimestampMs) -> PostEdited:
    return PostEdited(
        network=NETWORK,
        id=uri,
        text=bounded(record.text),
        tags=_tags(record),
        languages=languages(record.langs),
        edited_ms=seen_ms,
        seen_ms=seen_ms,
    )


def _tags(record: _Record) -> tuple[str, ...]:
    """Tags of the facets, of the record's own list, and of the text, in case the software set neither."""
    marked = [
        feature.tag
        for facet in record.facets or ()
        for feature in facet.features
        if feature.type == _TAG_FEATURE and feature.tag
    ]
    return distinct([*marked, *(record.tags or ()), *tags_in_text(record.text)])
