"""Election jitter: the members of one group draw different numbers."""

from __future__ import annotations

import pytest
from tests.broker.raft.group import ids

from kafkaesque.broker.raft.types import Membership
from kafkaesque.broker.replication.opening import ElectionJitter
from kafkaesque.model.ids import GroupId, MemberId

DRAWS = 50


def jitter_of(member: int, voters: tuple[int, ...], group: int = 16) -> ElectionJitter:
    membership = Membership(ids(*voters))
    return ElectionJitter(MemberId(member), GroupId(group), lambda: membership)


@pytest.mark.parametrize("voters", [(0, 1), (0, 1, 2), (4, 7, 9), (1, 2, 3, 4, 5)])
@pytest.mark.parametrize("bound", [5, 10])
def test_no_two_voters_draw_the_same_number(voters: tuple[int, ...], bound: int) -> None:
    drawn = [{jitter_of(voter, voters)(bound) for _ in range(DRAWS)} for voter in voters]
    assert all(0 <= number < bound for numbers in drawn for number in numbers)
    assert sum(map(len, drawn)) == len(set().union(*drawn))


def test_another_member_is_first_in_the_next_group() -> None:
    first = {group: [jitter_of(n, (0, 1, 2), group)(5) for n in range(3)] for group in (16, 17, 18)}
    assert {numbers.index(0) for numbers in first.values()} == {0, 1, 2}


def test_number_is_random_for_a_member_that_is_not_a_voter_or_has_no_membership_yet() -> None:
    stranger = jitter_of(9, (0, 1, 2))
    assert len({stranger(10) for _ in range(200)}) > 5
    joining = jitter_of(0, ())
    assert len({joining(10) for _ in range(200)}) > 5
