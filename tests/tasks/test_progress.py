from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkaesque.client.ports import CommitPoint
from kafkaesque.model.ids import Offset
from kafkaesque.model.limits import OFFSET_METADATA_LENGTH_MAX
from kafkaesque.tasks.progress import WINDOW_OFFSETS_MAX, Progress, pack_gaps, unpack_gaps


def point(progress: Progress) -> CommitPoint:
    found = progress.point()
    assert found is not None
    return found


def test_the_commit_is_the_lowest_unfinished_and_names_what_is_done_beyond() -> None:
    progress = Progress()
    for offset in range(10, 15):
        assert progress.begin(Offset(offset))
    for offset in (14, 12, 10):
        progress.finish(Offset(offset))
    assert point(progress).offset == 11
    assert unpack_gaps(11, point(progress).metadata) == {12, 14}
    assert progress.window == 4


def test_when_all_is_done_the_commit_is_the_next_offset() -> None:
    progress = Progress()
    for offset in (3, 7):  # a marker or a compacted stretch lies between
        progress.begin(Offset(offset))
        progress.finish(Offset(offset))
    assert point(progress) == CommitPoint(Offset(8), "g1")
    assert progress.window == 0


def test_a_successor_skips_what_was_finished_and_nothing_else() -> None:
    first = Progress()
    for offset in range(6):
        first.begin(Offset(offset))
    for offset in (0, 2, 3, 5):
        first.finish(Offset(offset))
    second = Progress(point(first))
    assert [offset for offset in range(1, 7) if second.begin(Offset(offset))] == [1, 4, 6]


def test_a_successor_that_commits_before_it_has_read_all_forgets_nothing() -> None:
    first = Progress()
    for offset in range(6):
        first.begin(Offset(offset))
    for offset in (2, 5):
        first.finish(Offset(offset))
    second = Progress(point(first))
    second.begin(Offset(0))
    second.finish(Offset(0))
    assert unpack_gaps(1, point(second).metadata) == {2, 5}


def test_an_unchanged_point_is_not_committed_again() -> None:
    progress = Progress()
    assert progress.point() is None
    progress.begin(Offset(0))
    progress.finish(Offset(0))
    progress.committed(point(progress))
    assert progress.point() is None


def test_a_topic_made_anew_begins_below_what_was_committed() -> None:
    progress = Progress(CommitPoint(Offset(500), pack_gaps(500, {501})))
    assert progress.begin(Offset(0))
    assert progress.begin(Offset(1))
    progress.finish(Offset(0))
    assert point(progress).offset == 1


@pytest.mark.parametrize("metadata", ["", "hello", "g1b:###", "g1z:AAAA", "g1x:AA==", "g1"])
def test_metadata_of_another_or_damaged_costs_a_repetition_only(metadata: str) -> None:
    assert unpack_gaps(7, metadata) == frozenset()


def test_the_worst_bitmap_of_a_full_window_fits_a_commit() -> None:
    import random

    chance = random.Random(1)
    finished = {offset for offset in range(WINDOW_OFFSETS_MAX) if chance.random() < 0.5}
    metadata = pack_gaps(0, finished)
    assert len(metadata) <= OFFSET_METADATA_LENGTH_MAX
    assert unpack_gaps(0, metadata) == finished


def test_offsets_beyond_the_window_are_left_out() -> None:
    assert unpack_gaps(0, pack_gaps(0, {1, WINDOW_OFFSETS_MAX, 10**12})) == {1}


@settings(deadline=None, max_examples=60)
@given(base=st.integers(0, 2**50), finished=st.sets(st.integers(0, WINDOW_OFFSETS_MAX - 1)))
def test_gaps_survive_their_text(base: int, finished: set[int]) -> None:
    offsets = {base + one for one in finished}
    assert unpack_gaps(base, pack_gaps(base, offsets)) == offsets


@settings(deadline=None, max_examples=60)
@given(st.lists(st.booleans(), max_size=60), st.data())
def test_whatever_ends_when_nothing_done_is_repeated_and_nothing_undone_is_skipped(
    ends: list[bool], data: st.DataObject
) -> None:
    progress = Progress()
    for offset in range(len(ends)):
        progress.begin(Offset(offset))
    done = [offset for offset, is_done in enumerate(ends) if is_done]
    for offset in data.draw(st.permutations(done)):
        progress.finish(Offset(offset))
    found = progress.point()
    start = 0 if found is None else found.offset
    successor = Progress(found)
    repeated = [offset for offset in range(start, len(ends)) if successor.begin(Offset(offset))]
    assert repeated == [offset for offset, is_done in enumerate(ends) if not is_done]
