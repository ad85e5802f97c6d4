"""Parses lines of X's filtered and compliance streams, and computes the stream's rules. Pure.

Protocol: docs.x.com, x-api/posts/filtered-stream and x-api/compliance/streams. The stream has no cursor:
a gap is filled by requesting the minutes that it lasted (`cursors.plan_x`), or by recent search
(x-api/posts/search/introduction, `cursors.plan_x_search`). The stored cursor, the largest post id seen,
is informational only. X sends deletions only on its compliance stream.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from kafkaesque.events.social import Post, PostDeleted
from kafkaesque.model.ids import TimestampMs
from kafkaesque.sources.rules.frames import StreamFrame
from kafkaesque.sources.rules.hashtags import distinct, tags_in_text
from kafkaesque.sources.rules.parsing import (
    FrameError,
    Parsed,
    StreamEnded,
    bounded,
    decode,
    identity,
    languages,
    number,
    time_ms,
)

NETWORK = "x"
RULE_LENGTH_MAX = 1024
RULES_MAX = 1000
QUERY_LENGTH_MAX = 512
"""Limit of recent search at the lowest access level that has it."""
FIELDS = "created_at,lang,entities,author_id,referenced_tweets"
_NO_LANGUAGE = frozenset({"und", "zxx", "qme", "qht", "qct", "qam", "art", "qst"})


class _Hashtag(msgspec.Struct):
    tag: str


class _Entities(msgspec.Struct):
    hashtags: list[_Hashtag] | None = None


class _Referenced(msgspec.Struct):
    type: str
    id: str


class _Named(msgspec.Struct):
    id: str
    author_id: str | None = None


class _Deletion(msgspec.Struct):
    tweet: _Named
    event_at: str | None = None


class _Data(msgspec.Struct):
    id: str | None = None
    text: str = ""
    author_id: str | None = None
    created_at: str | None = None
    lang: str | None = None
    entities: _Entities | None = None
    referenced_tweets: list[_Referenced] | None = None
    delete: _Deletion | None = None


class _Problem(msgspec.Struct):
    title: str = ""
    detail: str = ""


class _Line(msgspec.Struct):
    data: _Data | None = None
    errors: list[_Problem] | None = None
    title: str | None = None
    detail: str | None = None


class XRule(msgspec.Struct, frozen=True):
    """A rule of the filtered stream, as in the API."""

    value: str
    tag: str = ""
    id: str = ""


class XRules(msgspec.Struct):
    """The response to GET .../rules; `data` is absent if there are no rules."""

    data: list[XRule] = []


class _Meta(msgspec.Struct):
    next_token: str | None = None


class _Page(msgspec.Struct):
    data: list[msgspec.Raw] = []
    meta: _Meta = msgspec.field(default_factory=_Meta)


_lines = msgspec.json.Decoder(_Line)
_pages = msgspec.json.Decoder(_Page)


def page_lines(body: bytes) -> tuple[list[bytes], str | None]:
    """The posts of a recent-search page as lines of the stream, and the token of the next page."""
    page = decode(_pages, body)
    return [b'{"data":%s}' % bytes(post) for post in page.data], page.meta.next_token


def parse(frame: StreamFrame, read_ms: TimestampMs) -> Parsed:
    line = decode(_lines, frame.data)
    if line.data is None:
        if line.errors:
            raise StreamEnded("; ".join(problem.title or problem.detail for problem in line.errors))
        if line.title is not None:
            raise StreamEnded(f"{line.title}: {line.detail or ''}")
        # "Over time, new message types may be added to the stream."
        return Parsed()
    data = line.data
    if data.delete is not None:
        return _deleted(data.delete, read_ms)
    if data.id is None:
        return Parsed()
    post_id = number(data.id, "post id")
    return Parsed((_post(data, data.id, read_ms),), post_id)


def _deleted(deletion: _Deletion, read_ms: TimestampMs) -> Parsed:
    number(deletion.tweet.id, "post id")
    at_ms = time_ms(deletion.event_at, read_ms)
    return Parsed((PostDeleted(network=NETWORK, id=deletion.tweet.id, deleted_ms=at_ms),))


def _post(data: _Data, post_id: str, read_ms: TimestampMs) -> Post:
    if data.author_id is None:
        raise FrameError(f"post {post_id} has no author")
    marked = [item.tag for item in (data.entities.hashtags if data.entities else None) or ()]
    replies = [item.id for item in data.referenced_tweets or () if item.type == "replied_to"]
    return Post(
        network=NETWORK,
        id=post_id,
        author=identity(data.author_id, "author id"),
        text=bounded(data.text),
        tags=distinct([*marked, *tags_in_text(data.text)]),
        languages=languages([data.lang] if data.lang and data.lang not in _NO_LANGUAGE else None),
        created_ms=time_ms(data.created_at, read_ms),
        seen_ms=read_ms,
        url=f"https://x.com/i/web/status/{post_id}",
        reply_to=replies[0] if replies else None,
    )


def rule_values(tags: Iterable[str], length_max: int = RULE_LENGTH_MAX) -> list[str]:
    """The fewest rules that together match every post with one of `tags`."""
    values: list[str] = []
    for tag in tags:
        term = f"#{tag}"
        if values and len(values[-1]) + len(" OR ") + len(term) <= length_max:
            values[-1] += f" OR {term}"
        else:
            values.append(term)
    return values[:RULES_MAX]


def rule_changes(
    present: Sequence[XRule], tags: Iterable[str], label: str
) -> tuple[list[XRule], list[str]]:
    """The rules to add and the ids of rules to remove, so that the rules with our label match `tags`.

    Rules with other labels stay.
    """
    wanted = rule_values(tags)
    ours = [rule for rule in present if rule.tag == label]
    there = {rule.value for rule in ours}
    add = [XRule(value, label) for value in wanted if value not in there]
    return add, [rule.id for rule in ours if rule.value not in wanted]
