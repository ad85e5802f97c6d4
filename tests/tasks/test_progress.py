from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from kafkaesque.client.ports import CommitPoint
from kafkaesque.model.ids import Offset
from kafkaesque.tasks.rules.gaps import KEYS_MAX, WINDOW_OFFSETS_MAX, Gaps, pack_gaps, unpack_gaps
from kafkaesque.tasks.rules.progress import Progress


def point(progress: Progress) -> CommitPoint:
    found = progress.point()
    assert found is not None
    return found


def read(progress: Progress, *offsets: int, key: bytes | None = None) -> list[int]:
    """Those that are to be done, and are held from now on."""
    held = []
    for offset in offsets:
        if progress.read(Offset(offset), key):
            progress.begin(Offset(offset), key)
            held.append(offset)
    return held


def finish(progress: Progress, *offsets: int, key: bytes | None = None) -> None:
    for offset in offsets:
        progress.finish(Offset(offset), key)


def test_the_commit_is_the_lowest_unfinished_and_names_what_is_open_beyond() -> None:
    progress = Progress()
    read(progress, *range(10, 15))
    finish(progress, 14, 12, 10)
    assert point(progress).offset == 11
    assert unpack_gaps(11, point(progress).metadata) == Gaps(11, 15, {11, 13})
    assert progress.window == 4


def test_when_all_is_done_the_commit_is_the_next_offset() -> None:
    progress = Progress()
    for offset in (3, 7):  # a marker or a compacted stretch lies between
        read(progress, offset)
        finish(progress, offset)
    assert point(progress) == CommitPoint(Offset(8), "g2")
    assert progress.window == 0


def test_a_successor_skips_what_was_finished_and_nothing_else() -> None:
    first = Progress()
    read(first, *range(6))
    finish(first, 0, 2, 3, 5)
    second = Progress(point(first))
    assert read(second, *range(1, 7)) == [1, 4, 6]


def test_a_successor_that_commits_before_it_has_read_all_forgets_nothing() -> None:
    first = Progress()
    read(first, *range(6))
    finish(first, 2, 5)
    second = Progress(point(first))
    read(second, 0)
    finish(second, 0)
    assert read(Progress(point(second)), *range(1, 6)) == [1, 3, 4]


def test_an_unchanged_point_is_not_committed_again() -> None:
    progress = Progress()
    assert progress.point() is None
    read(progress, 0)
    finish(progress, 0)
    progress.committed(point(progress))
    assert progress.point() is None


def test_a_topic_made_anew_begins_below_what_was_committed() -> None:
    progress = Progress(CommitPoint(Offset(500), pack_gaps(Gaps(500, 502, {500}))))
    assert read(progress, 0, 1) == [0, 1]
    finish(progress, 0)
    assert point(progress).offset == 1


def test_one_slow_call_does_not_end_the_window_while_the_others_finish() -> None:
    progress = Progress()
    read(progress, 0)
    for offset in range(1, 3 * WINDOW_OFFSETS_MAX):
        read(progress, offset)
        finish(progress, offset)
    assert progress.window == 3 * WINDOW_OFFSETS_MAX
    assert progress.room > 1_000
    successor = Progress(point(progress))
    assert read(successor, *range(3 * WINDOW_OFFSETS_MAX)) == [0]


def test_too_much_that_is_open_ends_the_window_before_a_commit_is_too_small() -> None:
    progress = Progress()
    read(progress, *range(WINDOW_OFFSETS_MAX))
    assert progress.room < 1
    finish(progress, *range(1, WINDOW_OFFSETS_MAX))
    assert progress.room > 1_000


def test_many_open_calls_of_one_key_take_the_place_of_a_few() -> None:
    progress = Progress()
    read(progress, 0, *range(1, 5_001), key=b"hot")
    read(progress, *range(5_001, 30_000))
    finish(progress, *range(5_001, 30_000))
    assert progress.room > 1_000
    successor = Progress(point(progress))
    assert read(successor, *range(5_001), key=b"hot") == list(range(5_001))
    assert read(successor, *range(5_001, 30_000)) == []


def test_a_call_that_overtook_its_predecessors_end_is_not_said_to_be_open() -> None:
    """Its consequences may be in the log before those of the one before."""
    progress = Progress()
    read(progress, *range(40), key=b"k")
    finish(progress, 1, key=b"k")
    read(progress, 2 * WINDOW_OFFSETS_MAX)
    successor = Progress(point(progress))
    assert read(successor, *range(40), key=b"k") == [0, *range(2, 40)]
    read(successor, 2 * WINDOW_OFFSETS_MAX)
    finish(successor, 2 * WINDOW_OFFSETS_MAX)
    assert read(Progress(point(successor)), *range(40), key=b"k") == [0, *range(2, 40)]


def test_what_is_left_in_the_log_is_open_for_the_successor() -> None:
    progress = Progress()
    read(progress, 0, key=b"k")
    for offset in range(1, 100):
        key = b"k" if offset % 2 else b"other"
        progress.read(Offset(offset), key)
        if offset % 2:
            progress.leave(Offset(offset), key)
        else:
            progress.begin(Offset(offset), key)
            progress.finish(Offset(offset), key)
    assert progress.left == 50
    finish(progress, 0, key=b"k")
    assert point(progress).offset == 1
    successor = Progress(point(progress))
    open_now = [n for n in range(1, 100) if successor.read(Offset(n), b"k" if n % 2 else b"other")]
    assert open_now == list(range(1, 100, 2))


def test_what_was_left_is_taken_back_one_after_the_other_until_none_is_left() -> None:
    progress = Progress()
    read(progress, 0, key=b"k")
    for offset in (1, 2):
        progress.read(Offset(offset), b"k")
        progress.leave(Offset(offset), b"k")
    finish(progress, 0, key=b"k")
    progress.take_back(Offset(1), b"k")
    assert b"k" in progress.closed
    progress.take_back(Offset(2), b"k")
    assert not progress.closed
    finish(progress, 1, 2, key=b"k")
    assert point(progress).offset == 3


def test_only_so_many_keys_are_closed_as_a_commit_has_room_for() -> None:
    progress = Progress()
    for n in range(KEYS_MAX):
        progress.read(Offset(n), b"%d" % n)
        assert progress.may_close(Offset(n), b"%d" % n)
        progress.leave(Offset(n), b"%d" % n)
    progress.read(Offset(KEYS_MAX), b"one more")
    assert not progress.may_close(Offset(KEYS_MAX), b"one more")


@settings(deadline=None, max_examples=100)
@given(
    calls=st.lists(st.tuples(st.sampled_from([None, b"a", b"b"]), st.booleans()), max_size=60),
    stretch=st.sampled_from([1, WINDOW_OFFSETS_MAX // 20]),
    data=st.data(),
)
def test_whatever_ends_when_nothing_done_is_repeated_and_nothing_undone_is_skipped(
    calls: list[tuple[bytes | None, bool]], stretch: int, data: st.DataObject
) -> None:
    """`stretch`: offsets from record to record, so that the windows are short ones and long ones."""
    progress = Progress()
    offsets = [n * stretch for n in range(len(calls))]
    for offset, (key, _) in zip(offsets, calls, strict=True):
        read(progress, offset, key=key)
    done = [n for n, (_, is_done) in enumerate(calls) if is_done]
    for n in data.draw(st.permutations(done)):
        finish(progress, offsets[n], key=calls[n][0])
    undone = [offset for offset, (_, is_done) in zip(offsets, calls, strict=True) if not is_done]
    found: CommitPoint | None = None
    for _ in range(2):
        # The second successor comes after the first has read all again and done nothing.
        found = progress.point() or found
        progress = Progress(found)
        start = 0 if found is None else int(found.offset)
        repeated = [
            offset
            for offset, (key, _) in zip(offsets, calls, strict=True)
            if offset >= start and read(progress, offset, key=key)
        ]
        assert repeated == undone
