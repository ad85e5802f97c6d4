from __future__ import annotations

from kafkaesque.events.envelope import encode
from kafkaesque.events.social import (
    CURSORS,
    POSTS,
    REJECTED,
    FrameRejected,
    Post,
    PostDeleted,
    PostEdited,
    SourceCursor,
    cursor_envelope,
    post_envelope,
    post_key,
    rejection_envelope,
)
from kafkaesque.model.ids import TimestampMs

AT = TimestampMs(1_790_000_000_000)
POST = Post(
    network="x", id="7", author="42", text="hi #raft", tags=("raft",), languages=("en",),
    created_ms=AT, seen_ms=AT,
)  # fmt: skip
EDITED = PostEdited(network="x", id="7", text="ho", tags=(), languages=(), edited_ms=AT, seen_ms=AT)
DELETED = PostDeleted(network="x", id="7", deleted_ms=AT)


def test_post_edit_and_deletion_share_a_key_and_have_distinct_ids() -> None:
    events = [POST, EDITED, DELETED]
    assert {post_key(event) for event in events} == {"x/7"}
    assert len({post_envelope(event, "s").id for event in events}) == 3


def test_same_event_seen_by_two_sources_has_one_id() -> None:
    assert post_envelope(POST, "one").id == post_envelope(POST, "two").id


def test_events_round_trip() -> None:
    for event in (POST, EDITED, DELETED):
        assert POSTS.decode(encode(post_envelope(event, "s"))).body == event
    cursor = SourceCursor(network="x", source="s", stream="posts", cursor="9", read_ms=AT)
    assert CURSORS.decode(encode(cursor_envelope(cursor))).body == cursor
    rejected = FrameRejected(network="x", source="s", reason="r", raw="{", size_bytes=1)
    assert REJECTED.decode(encode(rejection_envelope(rejected, 1, AT))).body == rejected
