"""The parsers of the three networks, with valid and invalid frames."""

from __future__ import annotations

import contextlib
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkaesque.events.social import Post, PostDeleted, PostEdited
from kafkaesque.model.ids import TimestampMs
from kafkaesque.sources.rules import jetstream, mastodon, parsing, x
from kafkaesque.sources.rules.frames import MESSAGE, StreamFrame, frame
from kafkaesque.sources.rules.parsing import FrameError, Parsed, Parser, StreamEnded

READ = TimestampMs(1_790_000_000_500)
PARSERS: list[Parser] = [jetstream.parse, mastodon.parse, x.parse]

JETSTREAM: dict[str, Any] = {
    "did": "did:plc:synthetic0001",
    "time_us": 1790000000000001,
    "kind": "commit",
    "commit": {
        "rev": "3syn1",
        "operation": "create",
        "collection": "app.bsky.feed.post",
        "rkey": "3synaaaa1",
        "record": {
            "$type": "app.bsky.feed.post",
            "createdAt": "2026-11-15T10:00:00.000Z",
            "langs": ["en"],
            "text": "first light on the #raft log",
            "facets": [
                {
                    "index": {"byteStart": 19, "byteEnd": 24},
                    "features": [{"$type": "app.bsky.richtext.facet#tag", "tag": "Raft"}],
                },
                {"features": [{"$type": "app.bsky.richtext.facet#link", "uri": "https://e.org"}]},
            ],
            "tags": ["hidden"],
            "reply": {"parent": {"uri": "at://p", "cid": "c"}, "root": {}},
        },
        "cid": "bafysynthetic",
    },
}
STATUS: dict[str, Any] = {
    "id": "108914327388663283",
    "created_at": "2026-11-15T10:00:00.000Z",
    "language": "en",
    "content": '<p>first &amp; light<br>on <a href="x">#<span>raft</span></a></p><p>log &lt;3</p>',
    "reblog": None,
    "account": {"acct": "freon@example.org"},
    "tags": [{"name": "Raft", "url": "u"}],
    "url": "https://example.org/1",
    "in_reply_to_id": None,
}
X_LINE: dict[str, Any] = {
    "data": {
        "id": "1900000000000000001",
        "text": "first light on the #raft log",
        "author_id": "42",
        "created_at": "2026-11-15T10:00:00.000Z",
        "lang": "en",
        "entities": {"hashtags": [{"start": 19, "end": 24, "tag": "raft"}]},
        "referenced_tweets": [{"type": "quoted", "id": "1"}, {"type": "replied_to", "id": "2"}],
    },
    "matching_rules": [{"id": "1", "tag": "demo"}],
}
CREATED = 1_794_736_800_000


def as_frame(value: object, event: str = MESSAGE) -> StreamFrame:
    return frame(event, msgspec.json.encode(value))


def changed(value: Any, path: str, new: object) -> Any:
    """A copy of `value` with the part at the dotted path replaced, or removed for `...`."""
    head, _, rest = path.partition(".")
    copy = dict(value)
    if rest:
        copy[head] = changed(value[head], rest, new)
    elif new is ...:
        del copy[head]
    else:
        copy[head] = new
    return copy


def only_post(parsed: Parsed) -> Post:
    (event,) = parsed.events
    assert isinstance(event, Post)
    return event


def test_jetstream_create_is_a_post() -> None:
    parsed = jetstream.parse(as_frame(JETSTREAM), READ)
    post = only_post(parsed)
    assert parsed.cursor == 1790000000000001
    assert post.id == "at://did:plc:synthetic0001/app.bsky.feed.post/3synaaaa1"
    assert post.tags == ("raft", "hidden")
    assert (post.languages, post.reply_to) == (("en",), "at://p")
    assert (post.created_ms, post.seen_ms) == (CREATED, 1790000000000)


def test_jetstream_delete_and_update_refer_to_the_same_post() -> None:
    gone = changed(changed(JETSTREAM, "commit.operation", "delete"), "commit.record", ...)
    (deleted,) = jetstream.parse(as_frame(gone), READ).events
    assert isinstance(deleted, PostDeleted)
    update = changed(JETSTREAM, "commit.operation", "update")
    (edited,) = jetstream.parse(as_frame(update), READ).events
    assert isinstance(edited, PostEdited)
    assert deleted.id == edited.id == only_post(jetstream.parse(as_frame(JETSTREAM), READ)).id


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("kind", "identity"),
        ("commit.collection", "app.bsky.feed.like"),
        ("commit.operation", "new"),
    ],
)
def test_jetstream_frames_that_are_not_about_posts_advance_the_cursor(
    path: str, value: str
) -> None:
    parsed = jetstream.parse(as_frame(changed(JETSTREAM, path, value)), READ)
    assert parsed == Parsed((), 1790000000000001)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("time_us", "late"),
        ("time_us", -1),
        ("time_us", 2**60),
        ("did", None),
        ("did", "d" * 2000),
        ("commit.record", ...),
        ("commit.record", []),
        ("commit.record.text", 7),
        ("commit.record.facets", {"a": 1}),
        ("commit.record.langs", [1]),
    ],
)
def test_jetstream_frames_of_wrong_types_are_rejected(path: str, value: object) -> None:
    with pytest.raises(FrameError):
        jetstream.parse(as_frame(changed(JETSTREAM, path, value)), READ)


def test_invalid_dates_are_replaced_by_the_networks_time() -> None:
    for claim in ("yesterday", None, "99999-01-01T00:00:00Z", ""):
        value = changed(JETSTREAM, "commit.record.createdAt", claim)
        assert only_post(jetstream.parse(as_frame(value), READ)).created_ms == 1790000000000


def test_mastodon_status_is_a_post_in_plain_text() -> None:
    parsed = mastodon.parse(as_frame(STATUS, "update"), READ)
    post = only_post(parsed)
    assert post.text == "first & light\non #raft\nlog <3"
    assert (post.tags, post.author, post.seen_ms) == (("raft",), "freon@example.org", READ)
    assert parsed.cursor == 108914327388663283


def test_mastodon_websocket_messages_equal_its_events() -> None:
    payload = msgspec.json.encode(STATUS).decode()
    message = {"stream": ["hashtag", "raft"], "event": "update", "payload": payload}
    by_socket = mastodon.parse(as_frame(message), READ)
    assert by_socket == mastodon.parse(as_frame(STATUS, "update"), READ)


def test_mastodon_delete_edit_and_boost() -> None:
    (deleted,) = mastodon.parse(frame("delete", b"108914327388663283"), READ).events
    assert isinstance(deleted, PostDeleted)
    edited = changed(STATUS, "id", "5") | {"edited_at": "2026-11-15T10:00:01.000Z"}
    (event,) = mastodon.parse(as_frame(edited, "status.update"), READ).events
    assert isinstance(event, PostEdited)
    assert event.edited_ms == CREATED + 1000
    boost = changed(STATUS, "reblog", {"id": "1"})
    assert mastodon.parse(as_frame(boost, "update"), READ).events == ()


def test_mastodon_pages_yield_posts_and_only_their_end_advances_the_cursor() -> None:
    page = as_frame([STATUS, changed(STATUS, "id", "9")], mastodon.PAGE)
    parsed = mastodon.parse(page, READ)
    assert (len(parsed.events), parsed.cursor) == (2, None)
    assert mastodon.largest_id(page.data) == 108914327388663283
    assert mastodon.largest_id(b"[]") is None
    assert mastodon.parse(frame(mastodon.CAUGHT_UP, b"12"), READ) == Parsed((), 12)


@pytest.mark.parametrize(
    ("named", "secure", "expected"),
    [
        ("wss://streaming.example.org", True, "https://streaming.example.org"),
        ("ws://127.0.0.1:4000/", False, "http://127.0.0.1:4000"),
        ("ws://streaming.example.org", True, None),
        ("file:///etc/passwd", False, None),
        (7, False, None),
    ],
)
def test_mastodon_streaming_host_comes_from_the_instance(
    named: object, secure: bool, expected: str | None
) -> None:
    instance = msgspec.json.encode({"configuration": {"urls": {"streaming": named}}})
    assert mastodon.streaming_url(instance, secure=secure) == expected
    assert mastodon.streaming_url(b"", secure=secure) is None


def test_mastodon_events_of_other_kinds_are_ignored() -> None:
    for event in ("filters_changed", "notification", "announcement", "tomorrow.new"):
        assert mastodon.parse(frame(event, b"undefined"), READ) == Parsed()


@pytest.mark.parametrize(
    "given_frame",
    [
        frame("delete", b"not a number"),
        frame("delete", "١٢".encode()),
        frame("update", b"{}"),
        as_frame(changed(STATUS, "account", None), "update"),
        as_frame(changed(STATUS, "id", "x"), "update"),
        as_frame({"error": "Unknown stream type", "status": 400}),
        as_frame({"payload": "x"}),
        as_frame({"event": "update", "payload": {"id": 1}}),
    ],
)
def test_mastodon_frames_of_wrong_types_are_rejected(given_frame: StreamFrame) -> None:
    with pytest.raises(FrameError):
        mastodon.parse(given_frame, READ)


def test_x_line_is_a_post() -> None:
    parsed = x.parse(as_frame(X_LINE), READ)
    post = only_post(parsed)
    assert (post.id, post.author, post.tags) == ("1900000000000000001", "42", ("raft",))
    assert (post.created_ms, post.reply_to, post.languages) == (CREATED, "2", ("en",))
    assert parsed.cursor == 1900000000000000001


def test_x_search_page_yields_lines_of_the_stream() -> None:
    page = {"data": [X_LINE["data"]], "meta": {"next_token": "b26v89"}}
    (found,), token = x.page_lines(msgspec.json.encode(page))
    assert token == "b26v89"
    assert only_post(x.parse(frame(MESSAGE, found), READ)).id == "1900000000000000001"
    assert x.page_lines(b'{"meta": {"result_count": 0}}') == ([], None)
    with pytest.raises(FrameError):
        x.page_lines(b'{"data": 3}')


def test_x_deletion_comes_from_the_compliance_stream() -> None:
    line = {
        "data": {
            "delete": {
                "tweet": {"id": "601430178305220608", "author_id": "3198576760"},
                "event_at": "2026-11-15T10:00:00.000Z",
            }
        }
    }
    (event,) = x.parse(as_frame(line), READ).events
    assert event == PostDeleted(
        network="x", id="601430178305220608", deleted_ms=TimestampMs(CREATED)
    )


@pytest.mark.parametrize(
    "line",
    [
        {"errors": [{"title": "operational-disconnect", "detail": "d"}]},
        {"title": "ConnectionException", "detail": "at the maximum allowed connection limit"},
    ],
)
def test_x_error_in_the_stream_ends_it(line: dict[str, object]) -> None:
    with pytest.raises(StreamEnded):
        x.parse(as_frame(line), READ)


def test_x_messages_of_a_new_kind_are_ignored() -> None:
    assert x.parse(as_frame({"data": {"withheld": {}}}), READ) == Parsed()
    assert x.parse(as_frame({"tomorrow": 1}), READ) == Parsed()


@pytest.mark.parametrize(
    ("path", "value"),
    [("data.id", "-5"), ("data.author_id", ...), ("data.text", None), ("data.entities", [])],
)
def test_x_lines_of_wrong_types_are_rejected(path: str, value: object) -> None:
    with pytest.raises(FrameError):
        x.parse(as_frame(changed(X_LINE, path, value)), READ)


def test_x_rules_are_as_few_as_their_length_allows() -> None:
    assert x.rule_values(["raft", "kafka"]) == ["#raft OR #kafka"]
    values = x.rule_values([f"tag{n:05}" for n in range(500)])
    assert all(len(value) <= x.RULE_LENGTH_MAX for value in values)
    assert sum(value.count("#") for value in values) == 500


def test_x_rules_of_other_labels_stay() -> None:
    present = [
        x.XRule("#a", "mine", "1"),
        x.XRule("#old", "mine", "2"),
        x.XRule("#b", "theirs", "3"),
    ]
    add, remove = x.rule_changes(present, ["a"], "mine")
    assert (add, remove) == ([], ["2"])
    add, remove = x.rule_changes(present, ["a", "b"], "mine")
    assert (add, remove) == ([x.XRule("#a OR #b", "mine")], ["1", "2"])


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["did", "data", "commit", "id", "event", "payload", "errors", "record"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@pytest.mark.parametrize("parser", PARSERS)
@given(
    json_values | st.binary(max_size=40), st.sampled_from(["message", "update", "delete", "page"])
)
@settings(deadline=None, max_examples=150)
def test_parsers_raise_only_their_documented_exceptions(
    parser: Parser, value: object, event: str
) -> None:
    data = value if isinstance(value, bytes) else msgspec.json.encode(value)
    with contextlib.suppress(FrameError, StreamEnded):
        parser(frame(event, data), READ)


def test_deeply_nested_json_is_an_invalid_frame() -> None:
    for parser in PARSERS:
        with pytest.raises(FrameError):
            parser(frame("message", b'{"data":' * 50_000), READ)


def test_texts_and_languages_are_bounded() -> None:
    assert len(parsing.bounded("x" * 10**6)) == 100_000
    assert parsing.languages(["en", "", "x" * 99, *["de"] * 20]) == ("en", *["de"] * 7)
