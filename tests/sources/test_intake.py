from __future__ import annotations

import dataclasses
from typing import Any

import msgspec
import pytest

from kafkaesque.events.social import CURSORS, POSTS, REJECTED, FrameRejected, SourceCursor
from kafkaesque.events.topics import SOCIAL_POSTS, SOCIAL_REJECTED
from kafkaesque.model.ids import TimestampMs
from kafkaesque.sources.rules import x
from kafkaesque.sources.rules.frames import KEEPALIVE, MESSAGE, OVERSIZED, Frame, frame
from kafkaesque.sources.rules.hashtags import Following
from kafkaesque.sources.rules.intake import REJECTED_PER_BATCH_MAX, Batch, Identity, Intake
from kafkaesque.sources.rules.window import Window

READ = TimestampMs(1_790_000_000_000)


def line(post_id: str, text: str) -> Frame:
    data = {"data": {"id": post_id, "text": text, "author_id": "1"}}
    return frame(MESSAGE, msgspec.json.encode(data))


def deletion(post_id: str) -> Frame:
    data = {"data": {"delete": {"tweet": {"id": post_id}}}}
    return frame(MESSAGE, msgspec.json.encode(data))


@pytest.fixture
def intake() -> Intake:
    return new_intake()


def new_intake(**options: Any) -> Intake:
    following = Following(["raft"])
    return Intake(Identity("x", "me"), x.parse, following, Window(100, 100), **options)


def take(intake: Intake, *frames: Frame) -> Batch:
    batch = Batch()
    for item in frames:
        intake.take(batch, "posts", item, READ)
    return batch


def test_followed_post_becomes_a_record_keyed_by_post_and_dated_by_us(intake: Intake) -> None:
    (record,) = take(intake, line("5", "#raft"), line("6", "#zab")).records
    assert (record.topic, record.key, record.timestamp_ms) == (SOCIAL_POSTS.name, b"x/5", READ)
    assert POSTS.decode(record.value or b"").source == "me"
    assert (intake.counts.posts, intake.counts.unmatched) == (1, 1)


def test_duplicate_is_dropped_also_in_a_later_batch(intake: Intake) -> None:
    assert len(take(intake, line("5", "#raft"), line("5", "#raft")).records) == 1
    assert take(intake, line("5", "#raft")).records == []
    assert intake.counts.duplicates == 2


def test_deletion_of_a_post_that_we_have_follows_it(intake: Intake) -> None:
    batch = take(intake, line("5", "#raft"), deletion("5"), deletion("6"))
    assert [record.key for record in batch.records] == [b"x/5", b"x/5"]
    assert (intake.counts.deletions, intake.counts.foreign) == (1, 1)


def test_all_deletions_are_forwarded_when_asked_for() -> None:
    assert len(take(new_intake(all_deletes=True), deletion("6")).records) == 1


def test_bad_frame_is_a_dead_letter_with_its_reason(intake: Intake) -> None:
    batch = take(intake, frame(MESSAGE, b'{"torn": '), Frame(OVERSIZED, b"x" * 9000, 10**7))
    letters = [REJECTED.decode(record.value or b"").body for record in batch.records]
    assert [record.topic for record in batch.records] == [SOCIAL_REJECTED.name] * 2
    first, second = letters
    assert isinstance(first, FrameRejected)
    assert isinstance(second, FrameRejected)
    assert first.raw == '{"torn": '
    assert (second.size_bytes, len(second.raw)) == (10**7, 4000)


def test_flood_of_rubbish_does_not_fill_the_log(intake: Intake) -> None:
    batch = take(intake, *[frame(MESSAGE, b"!") for _ in range(100)])
    assert len(batch.records) == REJECTED_PER_BATCH_MAX
    assert intake.counts.rejected == 100


def test_cursor_says_how_far_it_was_read_and_never_goes_back(intake: Intake) -> None:
    take(intake, line("9", "#raft"), line("5", "#zab"))
    record = intake.cursor_record("posts")
    body = CURSORS.decode(record.value or b"").body
    assert isinstance(body, SourceCursor)
    assert (record.key, body.cursor, body.read_ms) == (b"me/posts", "9", READ)


def test_origin_lies_just_before_the_first_frame(intake: Intake) -> None:
    take(intake, line("9", "#raft"), line("12", "#raft"))
    body = CURSORS.decode(intake.origin_record("posts").value or b"").body
    assert isinstance(body, SourceCursor)
    assert (body.cursor, body.read_ms) == ("8", READ)


def test_keepalive_is_progress_without_a_frame(intake: Intake) -> None:
    take(intake, frame(KEEPALIVE, b""))
    assert intake.counts.frames == 0
    assert intake.progress["posts"].read_ms == READ


def test_notice_of_the_end_of_the_stream_is_kept(intake: Intake) -> None:
    ended = frame(MESSAGE, b'{"errors":[{"title":"operational-disconnect"}]}')
    assert take(intake, ended).records == []
    assert intake.notice == "operational-disconnect"


def test_frames_that_fill_a_gap_do_not_count_as_read_up_to_now(intake: Intake) -> None:
    """A connection that is cut in the middle of a gap must find all of the gap again."""
    take(intake, line("1", "#raft"))
    batch = Batch()
    later = TimestampMs(READ + 60_000)
    filling = dataclasses.replace(line("2", "#raft"), is_settled=False)
    intake.take(batch, "posts", filling, later)
    assert len(batch.records) == 1
    assert intake.progress["posts"].read_ms == READ
    intake.take(batch, "posts", frame(KEEPALIVE, b""), later)
    assert intake.progress["posts"].read_ms == later
