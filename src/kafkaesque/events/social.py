"""Posts of social networks, their edits and deletions, and the cursors of the sources.

Topics and keys: `topics.SOCIAL_POSTS` (Post, PostEdited, PostDeleted, keyed by `post_key`),
`topics.SOCIAL_CURSORS` (SourceCursor), `topics.SOCIAL_REJECTED` (FrameRejected).

Times: `created_ms` is what the author's software claims and may be arbitrary. `seen_ms` is when the
network (or the source, if the network does not say) first saw the post; use it for windows.
"""

from __future__ import annotations

from typing import ClassVar

from kafkaesque.events.envelope import Body, Envelope, Vocabulary
from kafkaesque.model.ids import TimestampMs

TEXT_LENGTH_MAX = 100_000
"""Maximum length of a stored text. Networks allow 300 to a few thousand characters, but a server may
send more."""
TAGS_MAX = 64
LANGUAGES_MAX = 8
RAW_LENGTH_MAX = 4_000
"""Maximum stored length of a rejected frame."""


class Post(Body, frozen=True, kw_only=True):
    """A post as it first appeared."""

    KIND: ClassVar[str] = "social.post"

    network: str
    id: str
    """The network's id: an AT URI, a status id, a post id. Unique within `network`."""
    author: str
    text: str
    tags: tuple[str, ...]
    """Distinct hashtags without `#`, case-folded, in order of appearance."""
    languages: tuple[str, ...]
    """BCP 47 tags from the author's software; empty if it gives none."""
    created_ms: TimestampMs
    seen_ms: TimestampMs
    url: str | None = None
    reply_to: str | None = None


class PostEdited(Body, frozen=True, kw_only=True):
    """The text of a post was changed. `edited_ms` identifies the edit."""

    KIND: ClassVar[str] = "social.post.edited"

    network: str
    id: str
    text: str
    tags: tuple[str, ...]
    languages: tuple[str, ...]
    edited_ms: TimestampMs
    seen_ms: TimestampMs


class PostDeleted(Body, frozen=True, kw_only=True):
    """The author deleted a post; consumers must remove their copies."""

    KIND: ClassVar[str] = "social.post.deleted"

    network: str
    id: str
    deleted_ms: TimestampMs


class SourceCursor(Body, frozen=True, kw_only=True):
    """Everything up to `cursor` of one stream of a source is in the log."""

    KIND: ClassVar[str] = "social.cursor"

    network: str
    source: str
    stream: str
    cursor: str
    """In the network's format; `sources.rules.cursors` computes where to resume from it."""
    read_ms: TimestampMs
    """The source's clock when it had read up to the cursor."""


class FrameRejected(Body, frozen=True, kw_only=True):
    """A frame that violates the network's protocol."""

    KIND: ClassVar[str] = "social.frame.rejected"

    network: str
    source: str
    reason: str
    raw: str
    size_bytes: int


PostEvent = Post | PostEdited | PostDeleted

POSTS = Vocabulary(Post, PostEdited, PostDeleted)
CURSORS = Vocabulary(SourceCursor)
REJECTED = Vocabulary(FrameRejected)


def post_key(event: PostEvent) -> str:
    """The record key: a post, its edits and its deletion share a partition."""
    return f"{event.network}/{event.id}"


def post_envelope(event: PostEvent, source: str) -> Envelope[PostEvent]:
    """The same event always has the same id, so that duplicates can be dropped."""
    match event:
        case Post():
            return Envelope(f"{post_key(event)}#post", event.seen_ms, source, event)
        case PostEdited():
            event_id = f"{post_key(event)}#edit/{event.edited_ms}"
            return Envelope(event_id, event.seen_ms, source, event)
        case PostDeleted():
            return Envelope(f"{post_key(event)}#delete", event.deleted_ms, source, event)


def cursor_envelope(cursor: SourceCursor) -> Envelope[SourceCursor]:
    name = f"{cursor.source}/{cursor.stream}"
    return Envelope(f"{name}@{cursor.cursor}", cursor.read_ms, cursor.source, cursor)


def rejection_envelope(
    rejected: FrameRejected, number: int, at_ms: TimestampMs
) -> Envelope[FrameRejected]:
    return Envelope(
        f"{rejected.source}/rejected/{at_ms}/{number}", at_ms, rejected.source, rejected
    )
