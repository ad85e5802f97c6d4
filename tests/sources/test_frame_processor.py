from __future__ import annotations

import dataclasses
from typing import Any

import msgspec
import pytest

from kafkaesque.events.social import CURSORS, POSTS, REJECTED, FrameRejected, SourceCursor
from kafkaesque.events.topics import SOCIAL_POSTS, SOCIAL_REJECTED
from kafkaesque.model.ids import TimestampMs
from kafkaesque.sources.rules import x
from kafkaesque.sources.rules.dedup_window import DedupWindow
from kafkaesque.sources.rules.frame_processor import (
    REJECTED_PER_BATCH_MAX,
    FrameProcessor,
    OutputBatch,
    SourceCounts,
    SourceIdentity,
)
from kafkaesque.sources.rules.frames import KEEPALIVE, MESSAGE, OVERSIZED, StreamFrame, frame
from kafkaesque.sources.rules.hashtags import HashtagFilter

READ = TimestampMs(1_790_000_000_000)


def line(post_id: str, text: str) -> StreamFrame:
    data = {"data": {"id": post_id, "text": text, "author_id": "1"}}
    return frame(MESSAGE, msgspec.json.encode(data))


def deletion(post_id: str) -> StreamFrame:
    data = {"data": {"delete": {"tweet": {"id": post_id}}}}
    return frame(MESSAGE, msgspec.json.encode(data))


@pytest.fixture
def processor() -> FrameProcessor:
    return new_processor()


def new_processor(**options: Any) -> FrameProcessor:
    return FrameProcessor(
        SourceIdentity("x", "me"),
        x.parse,
        HashtagFilter(["raft"]),
        DedupWindow(100, 100),
        SourceCounts(),
        {},
        **options,
    )


def process(processor: FrameProcessor, *frames: StreamFrame) -> OutputBatch:
    batch = OutputBatch()
    for item in frames:
        processor.process(batch, "posts", item, READ)
    return batch


def test_matching_post_becomes_a_record_keyed_by_post_with_our_timestamp(
    processor: FrameProcessor,
) -> None:
    (record,) = process(processor, line("5", "#raft"), line("6", "#zab")).records
    assert (record.topic, record.key, record.timestamp_ms) == (SOCIAL_POSTS.name, b"x/5", READ)
    assert POSTS.decode(record.value or b"").source == "me"
    assert (processor.counts.posts, processor.counts.unmatched) == (1, 1)


def test_duplicate_is_dropped_also_in_a_later_batch(processor: FrameProcessor) -> None:
    assert len(process(processor, line("5", "#raft"), line("5", "#raft")).records) == 1
    assert process(processor, line("5", "#raft")).records == []
    assert processor.counts.duplicates == 2


def test_deletion_of_a_post_in_the_window_is_forwarded(processor: FrameProcessor) -> None:
    batch = process(processor, line("5", "#raft"), deletion("5"), deletion("6"))
    assert [record.key for record in batch.records] == [b"x/5", b"x/5"]
    assert (processor.counts.deletions, processor.counts.foreign) == (1, 1)


def test_all_deletions_are_forwarded_if_configured() -> None:
    assert len(process(new_processor(all_deletes=True), deletion("6")).records) == 1


def test_invalid_frame_is_a_dead_letter_with_a_reason(processor: FrameProcessor) -> None:
    batch = process(
        processor, frame(MESSAGE, b'{"torn": '), StreamFrame(OVERSIZED, b"x" * 9000, 10**7)
    )
    letters = [REJECTED.decode(record.value or b"").body for record in batch.records]
    assert [record.topic for record in batch.records] == [SOCIAL_REJECTED.name] * 2
    first, second = letters
    assert isinstance(first, FrameRejected)
    assert isinstance(second, FrameRejected)
    assert first.raw == '{"torn": '
    assert (second.size_bytes, len(second.raw)) == (10**7, 4000)


def test_flood_of_invalid_frames_does_not_fill_the_log(processor: FrameProcessor) -> None:
    batch = process(processor, *[frame(MESSAGE, b"!") for _ in range(100)])
    assert len(batch.records) == REJECTED_PER_BATCH_MAX
    assert processor.counts.rejected == 100


def test_cursor_is_the_largest_position_read(processor: FrameProcessor) -> None:
    process(processor, line("9", "#raft"), line("5", "#zab"))
    record = processor.cursor_record("posts")
    body = CURSORS.decode(record.value or b"").body
    assert isinstance(body, SourceCursor)
    assert (record.key, body.cursor, body.read_ms) == (b"me/posts", "9", READ)


def test_origin_is_just_before_the_first_frame(processor: FrameProcessor) -> None:
    process(processor, line("9", "#raft"), line("12", "#raft"))
    body = CURSORS.decode(processor.origin_record("posts").value or b"").body
    assert isinstance(body, SourceCursor)
    assert (body.cursor, body.read_ms) == ("8", READ)


def test_keepalive_advances_the_read_time_only(processor: FrameProcessor) -> None:
    process(processor, frame(KEEPALIVE, b""))
    assert processor.counts.frames == 0
    assert processor.progress["posts"].read_ms == READ


def test_reason_for_the_end_of_a_stream_is_in_the_batch(processor: FrameProcessor) -> None:
    ended = frame(MESSAGE, b'{"errors":[{"title":"operational-disconnect"}]}')
    batch = process(processor, ended)
    assert batch.records == []
    assert batch.stream_ends == [("posts", "operational-disconnect")]


def test_frames_that_fill_a_gap_do_not_count_as_read_up_to_now(processor: FrameProcessor) -> None:
    """A connection lost in the middle of a gap must fill the whole gap again."""
    process(processor, line("1", "#raft"))
    batch = OutputBatch()
    later = TimestampMs(READ + 60_000)
    filling = dataclasses.replace(line("2", "#raft"), is_settled=False)
    processor.process(batch, "posts", filling, later)
    assert len(batch.records) == 1
    assert processor.progress["posts"].read_ms == READ
    processor.process(batch, "posts", frame(KEEPALIVE, b""), later)
    assert processor.progress["posts"].read_ms == later
