"""Log on disk and tail against a plain list, with syncs at any time."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.broker.raft.disk import Disk
from tests.broker.raft.group import data, ids, log_of

from kafkaesque.broker.raft.log_view import LogView
from kafkaesque.broker.raft.types import FRESH, NO_INDEX, LogIndex, Membership, Snapshot, Term
from kafkaesque.broker.raft.write_tracker import WriteTracker
from kafkaesque.model.errors import InvariantBroken


def view_of(*terms: int) -> tuple[LogView, Disk]:
    disk = Disk(ids(0))
    disk.written.entries = log_of(*terms)
    return LogView(disk), disk


class Model:
    """The log as one list, its durable part, and the writes in progress."""

    def __init__(self) -> None:
        self.disk = Disk(ids(0))
        self.view = LogView(self.disk)
        self.durability = WriteTracker(FRESH)
        self.terms: list[int] = []
        self.sure = 0
        self.writes: list[int] = []

    def append(self, count: int, new_term: bool) -> None:
        term = (self.terms[-1] if self.terms else 1) + new_term
        first = len(self.terms) + 1
        self.view.append([data(first + n, term) for n in range(count)])
        self.terms += [term] * count

    def cut(self, part: float) -> None:
        if self.terms:
            index = 1 + int(part * (len(self.terms) - 1))
            self.view.truncate_from(LogIndex(index))
            self.durability.clip(LogIndex(index - 1))
            del self.terms[index - 1 :]
            self.sure = min(self.sure, index - 1)
            self.writes = [min(last, index - 1) for last in self.writes]

    def hand(self) -> None:
        truncate_from, entries = self.view.take_truncation(), self.view.take_entries()
        if truncate_from is not None:
            self.disk.written.apply(truncate_from)
        for entry in entries:
            self.disk.written.apply(entry)
        self.durability.begin(None, NO_INDEX, self.view.last_index)
        self.writes.append(len(self.terms))
        assert [entry.term for entry in self.disk.written.entries] == self.terms

    def confirm(self) -> None:
        if self.writes:
            oldest = self.durability._writes[0].token
            for write in self.durability.confirm(oldest):
                self.view.is_durable_to(write.last_index)
            self.sure = max(self.sure, self.writes.pop(0))

    def check(self) -> None:
        self.view.validate()
        assert self.view.durable_index == self.sure
        assert self.view.last_index == len(self.terms)
        assert [self.view.term_at(LogIndex(n + 1)) for n in range(len(self.terms))] == self.terms
        assert self.view.term_at(LogIndex(len(self.terms) + 1)) is None
        if self.terms:
            assert self.view.last_term == self.terms[-1]


STEP = st.one_of(
    st.tuples(st.just("append"), st.integers(1, 4), st.booleans()),
    st.tuples(st.just("cut"), st.floats(0, 1)),
    st.tuples(st.just("hand")),
    st.tuples(st.just("confirm")),
)


@given(st.lists(STEP, max_size=40))
@settings(deadline=None, max_examples=300)
def test_view_is_one_log_whatever_writes_are_in_progress(
    steps: list[tuple[object, ...]],
) -> None:
    model = Model()
    for name, *arguments in steps:
        getattr(model, str(name))(*arguments)
        model.check()


def test_cut_of_entries_that_were_in_no_ready_is_not_reported() -> None:
    view, _ = view_of(1)
    view.append([data(2, 1), data(3, 1)])
    view.truncate_from(LogIndex(2))
    assert (view.take_truncation(), view.take_entries()) == (None, ())


def test_two_cuts_between_readies_are_one() -> None:
    view, _ = view_of(1, 1, 1, 1)
    view.truncate_from(LogIndex(4))
    view.truncate_from(LogIndex(2))
    view.append([data(2, 2)])
    assert view.take_truncation() == 2
    assert [entry.term for entry in view.take_entries()] == [2]


@pytest.mark.parametrize(
    ("last", "term", "expected"),
    [(6, 9, 6), (6, 3, 4), (6, 2, 2), (3, 3, 3), (6, 0, 0), (99, 9, 6), (0, 9, 0)],
)
def test_search_for_the_end_of_a_term(last: int, term: int, expected: int) -> None:
    view, _ = view_of(1, 1, 3, 3)
    view.append([data(5, 4), data(6, 4)])
    assert view.last_index_within_term(LogIndex(last), Term(term)) == expected


def test_search_stops_at_the_start_of_the_log() -> None:
    view, disk = view_of(1, 1, 3, 3)
    disk.written.compact(Snapshot(LogIndex(2), Term(1), Membership(ids(0)), "state"))
    assert view.last_index_within_term(LogIndex(4), Term(0)) == 2
    assert view.last_index_within_term(LogIndex(1), Term(9)) == 1


def test_append_message_is_bounded_and_never_empty() -> None:
    view, _ = view_of(1, 1, 1)
    view.append([data(4, 1), data(5, 1)])
    assert [entry.index for entry in view.entries_from(LogIndex(1), 25)] == [1, 2]
    assert [entry.index for entry in view.entries_from(LogIndex(4), 5)] == [4]
    assert [entry.index for entry in view.entries_from(LogIndex(4), 25)] == [4, 5]
    assert view.entries_from(LogIndex(6), 25) == ()


def test_gap_and_falling_terms_stop_the_node() -> None:
    view, _ = view_of(1, 2)
    with pytest.raises(InvariantBroken, match="gap"):
        view.append([data(4, 2)])
    with pytest.raises(InvariantBroken, match="terms decrease"):
        view.append([data(3, 1)])


def test_snapshot_replaces_the_whole_log_until_it_is_durable() -> None:
    view, _ = view_of(1, 1)
    snapshot = Snapshot(LogIndex(9), Term(3), Membership(ids(0)), "state")
    view.install(snapshot)
    view.append([data(10, 3)])
    assert (view.first_index, view.last_index, view.durable_index) == (10, 10, 0)
    assert (view.term_at(LogIndex(9)), view.term_at(LogIndex(2))) == (3, None)
    assert view.take_snapshot() == snapshot
    assert view.take_snapshot() is None
    assert len(view.take_entries()) == 1
    view.snapshot_is_durable(LogIndex(9))
    assert view.durable_index == 9
