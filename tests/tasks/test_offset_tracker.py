from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from kafkaesque.client.ports import CommitPoint
from kafkaesque.model.ids import Offset
from kafkaesque.tasks.rules.offset_metadata import (
    KEYS_MAX,
    WINDOW_OFFSETS_MAX,
    OpenOffsets,
    decode_metadata,
    encode_metadata,
)
from kafkaesque.tasks.rules.offset_tracker import OffsetTracker


def point(tracker: OffsetTracker) -> CommitPoint:
    found = tracker.commit_point()
    assert found is not None
    return found


def read(tracker: OffsetTracker, *offsets: int, key: bytes | None = None) -> list[int]:
    """Returns the offsets that must run, and holds them."""
    held = []
    for offset in offsets:
        if tracker.read(Offset(offset), key):
            tracker.start(Offset(offset), key)
            held.append(offset)
    return held


def finish(tracker: OffsetTracker, *offsets: int, key: bytes | None = None) -> None:
    for offset in offsets:
        tracker.finish(Offset(offset), key)


def test_the_commit_is_the_lowest_open_offset_and_lists_the_others() -> None:
    tracker = OffsetTracker()
    read(tracker, *range(10, 15))
    finish(tracker, 14, 12, 10)
    assert point(tracker).offset == 11
    assert decode_metadata(11, point(tracker).metadata) == OpenOffsets(11, 15, {11, 13})
    assert tracker.window == 4


def test_when_all_is_done_the_commit_is_the_next_offset() -> None:
    tracker = OffsetTracker()
    for offset in (3, 7):  # a transaction marker or compacted records are between them
        read(tracker, offset)
        finish(tracker, offset)
    assert point(tracker) == CommitPoint(Offset(8), "g2")
    assert tracker.window == 0


def test_a_successor_skips_what_was_finished_and_nothing_else() -> None:
    first = OffsetTracker()
    read(first, *range(6))
    finish(first, 0, 2, 3, 5)
    second = OffsetTracker(point(first))
    assert read(second, *range(1, 7)) == [1, 4, 6]


def test_a_successor_that_commits_before_it_has_read_everything_loses_nothing() -> None:
    first = OffsetTracker()
    read(first, *range(6))
    finish(first, 2, 5)
    second = OffsetTracker(point(first))
    read(second, 0)
    finish(second, 0)
    assert read(OffsetTracker(point(second)), *range(1, 6)) == [1, 3, 4]


def test_an_unchanged_point_is_not_committed_again() -> None:
    tracker = OffsetTracker()
    assert tracker.commit_point() is None
    read(tracker, 0)
    finish(tracker, 0)
    tracker.mark_committed(point(tracker))
    assert tracker.commit_point() is None


def test_a_recreated_topic_resets_the_tracker() -> None:
    tracker = OffsetTracker(CommitPoint(Offset(500), encode_metadata(OpenOffsets(500, 502, {500}))))
    assert read(tracker, 0, 1) == [0, 1]
    finish(tracker, 0)
    assert point(tracker).offset == 1


def test_one_slow_call_does_not_limit_the_window_while_others_finish() -> None:
    tracker = OffsetTracker()
    read(tracker, 0)
    for offset in range(1, 3 * WINDOW_OFFSETS_MAX):
        read(tracker, offset)
        finish(tracker, offset)
    assert tracker.window == 3 * WINDOW_OFFSETS_MAX
    assert tracker.room > 1_000
    successor = OffsetTracker(point(tracker))
    assert read(successor, *range(3 * WINDOW_OFFSETS_MAX)) == [0]


def test_too_many_open_offsets_leave_no_room() -> None:
    tracker = OffsetTracker()
    read(tracker, *range(WINDOW_OFFSETS_MAX))
    assert tracker.room < 1
    finish(tracker, *range(1, WINDOW_OFFSETS_MAX))
    assert tracker.room > 1_000


def test_many_open_calls_of_one_key_take_little_room() -> None:
    tracker = OffsetTracker()
    read(tracker, 0, *range(1, 5_001), key=b"hot")
    read(tracker, *range(5_001, 30_000))
    finish(tracker, *range(5_001, 30_000))
    assert tracker.room > 1_000
    successor = OffsetTracker(point(tracker))
    assert read(successor, *range(5_001), key=b"hot") == list(range(5_001))
    assert read(successor, *range(5_001, 30_000)) == []


def test_a_call_that_finished_before_its_predecessor_is_done() -> None:
    """Its follow-up records may be in the log before those of the previous call."""
    tracker = OffsetTracker()
    read(tracker, *range(40), key=b"k")
    finish(tracker, 1, key=b"k")
    read(tracker, 2 * WINDOW_OFFSETS_MAX)
    successor = OffsetTracker(point(tracker))
    assert read(successor, *range(40), key=b"k") == [0, *range(2, 40)]
    read(successor, 2 * WINDOW_OFFSETS_MAX)
    finish(successor, 2 * WINDOW_OFFSETS_MAX)
    assert read(OffsetTracker(point(successor)), *range(40), key=b"k") == [0, *range(2, 40)]


def test_deferred_records_are_open_for_the_successor() -> None:
    tracker = OffsetTracker()
    read(tracker, 0, key=b"k")
    for offset in range(1, 100):
        key = b"k" if offset % 2 else b"other"
        tracker.read(Offset(offset), key)
        if offset % 2:
            tracker.defer(Offset(offset), key)
        else:
            tracker.start(Offset(offset), key)
            tracker.finish(Offset(offset), key)
    assert tracker.deferred_count == 50
    finish(tracker, 0, key=b"k")
    assert point(tracker).offset == 1
    successor = OffsetTracker(point(tracker))
    open_now = [n for n in range(1, 100) if successor.read(Offset(n), b"k" if n % 2 else b"other")]
    assert open_now == list(range(1, 100, 2))


def test_deferred_records_are_resumed_one_by_one() -> None:
    tracker = OffsetTracker()
    read(tracker, 0, key=b"k")
    for offset in (1, 2):
        tracker.read(Offset(offset), b"k")
        tracker.defer(Offset(offset), b"k")
    finish(tracker, 0, key=b"k")
    tracker.resume(Offset(1), b"k")
    assert b"k" in tracker.deferred
    tracker.resume(Offset(2), b"k")
    assert not tracker.deferred
    finish(tracker, 1, 2, key=b"k")
    assert point(tracker).offset == 3


def test_only_as_many_keys_are_deferred_as_fit_in_a_commit() -> None:
    tracker = OffsetTracker()
    for n in range(KEYS_MAX):
        tracker.read(Offset(n), b"%d" % n)
        assert tracker.may_defer(Offset(n), b"%d" % n)
        tracker.defer(Offset(n), b"%d" % n)
    tracker.read(Offset(KEYS_MAX), b"one more")
    assert not tracker.may_defer(Offset(KEYS_MAX), b"one more")


@settings(deadline=None, max_examples=100)
@given(
    calls=st.lists(st.tuples(st.sampled_from([None, b"a", b"b"]), st.booleans()), max_size=60),
    stretch=st.sampled_from([1, WINDOW_OFFSETS_MAX // 20]),
    data=st.data(),
)
def test_a_successor_repeats_exactly_what_is_not_done(
    calls: list[tuple[bytes | None, bool]], stretch: int, data: st.DataObject
) -> None:
    """`stretch`: the distance between records, so that both short and long windows occur."""
    tracker = OffsetTracker()
    offsets = [n * stretch for n in range(len(calls))]
    for offset, (key, _) in zip(offsets, calls, strict=True):
        read(tracker, offset, key=key)
    done = [n for n, (_, is_done) in enumerate(calls) if is_done]
    for n in data.draw(st.permutations(done)):
        finish(tracker, offsets[n], key=calls[n][0])
    undone = [offset for offset, (_, is_done) in zip(offsets, calls, strict=True) if not is_done]
    found: CommitPoint | None = None
    for _ in range(2):
        # The second successor follows the first, which has read everything again and run nothing.
        found = tracker.commit_point() or found
        tracker = OffsetTracker(found)
        start = 0 if found is None else int(found.offset)
        repeated = [
            offset
            for offset, (key, _) in zip(offsets, calls, strict=True)
            if offset >= start and read(tracker, offset, key=key)
        ]
        assert repeated == undone
