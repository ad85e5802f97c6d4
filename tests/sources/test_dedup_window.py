from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.sources.samples import deletion, edit, post

from kafkaesque.events.social import Post, PostDeleted, PostEvent
from kafkaesque.sources.rules.dedup_window import DedupVerdict, DedupWindow

NEW, DUPLICATE, FOREIGN, WITHDRAWN = DedupVerdict


def test_second_appearance_of_a_post_is_a_duplicate() -> None:
    window = DedupWindow(10, 10)
    assert [window.admit(post("1")), window.admit(post("1"))] == [NEW, DUPLICATE]


def test_deletion_is_new_once_and_the_post_stays_deleted() -> None:
    window = DedupWindow(10, 10)
    events: list[PostEvent] = [post("1"), deletion("1"), deletion("1"), post("1"), edit("1", 9)]
    verdicts = [window.admit(event) for event in events]
    assert verdicts == [NEW, NEW, DUPLICATE, DUPLICATE, DUPLICATE]


def test_deletion_that_overtakes_its_post_withdraws_it() -> None:
    window = DedupWindow(10, 10)
    assert [window.admit(deletion("1")), window.admit(post("1"))] == [FOREIGN, WITHDRAWN]


def test_each_later_edit_is_new_and_an_earlier_one_is_not() -> None:
    window = DedupWindow(10, 10)
    events: list[PostEvent] = [edit("1", 5), post("1"), edit("1", 5), edit("1", 5), edit("1", 6)]
    verdicts = [window.admit(event) for event in events]
    assert verdicts == [FOREIGN, NEW, NEW, DUPLICATE, NEW]


def test_window_drops_the_oldest_and_stays_bounded() -> None:
    window = DedupWindow(3, 2)
    for name in "abcd":
        window.admit(post(name))
    assert len(window) == 3
    assert window.admit(post("d")) is DUPLICATE
    assert window.admit(post("a")) is NEW
    for name in "xyz":
        window.admit(deletion(name))
    assert window.admit(post("x")) is NEW
    assert window.admit(post("z")) is WITHDRAWN


events = st.builds(
    lambda make, name: make(str(name)), st.sampled_from([post, deletion]), st.integers(0, 6)
)


@given(st.lists(events, max_size=60))
@settings(deadline=None, max_examples=200)
def test_each_post_and_each_deletion_is_admitted_at_most_once(stream: list[PostEvent]) -> None:
    window = DedupWindow(100, 100)
    admitted = [(type(event), event.id) for event in stream if window.admit(event) is NEW]
    assert len(set(admitted)) == len(admitted)
    posted = [name for kind, name in admitted if kind is Post]
    deleted = [name for kind, name in admitted if kind is PostDeleted]
    assert set(deleted) <= set(posted)


@given(st.lists(events, max_size=60))
@settings(deadline=None, max_examples=200)
def test_window_rebuilt_from_the_log_rejects_a_replay_as_duplicates(
    stream: list[PostEvent],
) -> None:
    window = DedupWindow(100, 0)
    log = [event for event in stream if window.admit(event) is NEW]
    rebuilt = DedupWindow(100, 0)
    for event in log:
        rebuilt.remember(event)
    assert all(rebuilt.admit(event) is DUPLICATE for event in log)
