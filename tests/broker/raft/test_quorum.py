from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.broker.raft.group import ids

from kafkaesque.broker.raft.quorum import VoteResult, majority, reached_by_majority, vote_result
from kafkaesque.model.ids import MemberId


@given(st.lists(st.integers(0, 20), min_size=1, max_size=9))
@settings(deadline=None, max_examples=200)
def test_result_is_the_greatest_number_that_a_majority_reached(values: list[int]) -> None:
    reached = reached_by_majority(values, 0)
    needed = majority(len(values))
    assert sum(value >= reached for value in values) >= needed
    assert sum(value > reached for value in values) < needed


def test_without_voters_nothing_is_reached_and_no_election_won() -> None:
    assert reached_by_majority([], 0) == 0
    assert vote_result({}, ()) is VoteResult.LOST


@given(st.integers(1, 9))
def test_any_two_majorities_share_a_voter(count: int) -> None:
    assert 2 * majority(count) > count
    assert 2 * (majority(count) - 1) <= count


@given(st.dictionaries(st.sampled_from(ids(*range(9))), st.booleans()), st.integers(1, 7))
@settings(deadline=None, max_examples=200)
def test_verdict_is_final_when_no_further_vote_can_change_it(
    votes: dict[MemberId, bool], count: int
) -> None:
    voters = ids(*range(count))
    open_votes = [node for node in voters if node not in votes]
    best = {**votes, **dict.fromkeys(open_votes, True)}
    worst = {**votes, **dict.fromkeys(open_votes, False)}
    won_at_best = sum(best[node] for node in voters) >= majority(count)
    won_at_worst = sum(worst[node] for node in voters) >= majority(count)
    expected = (
        VoteResult.WON if won_at_worst else VoteResult.PENDING if won_at_best else VoteResult.LOST
    )
    assert vote_result(votes, voters) is expected
