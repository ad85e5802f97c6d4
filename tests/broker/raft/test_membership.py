from __future__ import annotations

import pytest
from tests.broker.raft.group import ids

from kafkaesque.broker.raft.membership import (
    ChangeKind,
    MembershipChange,
    MembershipHistory,
    changed,
)
from kafkaesque.broker.raft.types import LogIndex, Membership, MembershipAt, Refusal
from kafkaesque.model.errors import InvariantBroken
from kafkaesque.model.ids import MemberId

THREE = Membership(ids(0, 1, 2), ids(3))


@pytest.mark.parametrize(
    ("kind", "node", "expected"),
    [
        (ChangeKind.ADD_LEARNER, 4, Membership(ids(0, 1, 2), ids(3, 4))),
        (ChangeKind.ADD_LEARNER, 3, Refusal.NOTHING_TO_CHANGE),
        (ChangeKind.ADD_LEARNER, 1, Refusal.NOTHING_TO_CHANGE),
        (ChangeKind.PROMOTE, 3, Membership(ids(0, 1, 2, 3))),
        (ChangeKind.PROMOTE, 1, Refusal.NOTHING_TO_CHANGE),
        (ChangeKind.PROMOTE, 9, Refusal.NO_SUCH_MEMBER),
        (ChangeKind.DEMOTE, 1, Membership(ids(0, 2), ids(1, 3))),
        (ChangeKind.DEMOTE, 3, Refusal.NOTHING_TO_CHANGE),
        (ChangeKind.REMOVE, 1, Membership(ids(0, 2), ids(3))),
        (ChangeKind.REMOVE, 3, Membership(ids(0, 1, 2))),
        (ChangeKind.REMOVE, 9, Refusal.NO_SUCH_MEMBER),
    ],
)
def test_change_gives_the_membership_or_a_refusal(
    kind: ChangeKind, node: int, expected: Membership | Refusal
) -> None:
    assert changed(THREE, MembershipChange(kind, MemberId(node))) == expected


@pytest.mark.parametrize("kind", [ChangeKind.REMOVE, ChangeKind.DEMOTE])
def test_last_voter_stays(kind: ChangeKind) -> None:
    change = MembershipChange(kind, MemberId(0))
    assert changed(Membership(ids(0), ids(1)), change) is Refusal.LAST_VOTER


def test_membership_is_sorted_without_duplicates() -> None:
    for voters, learners in (((1, 0), ()), ((0, 0), ()), ((0,), (0,))):
        with pytest.raises(InvariantBroken):
            Membership(ids(*voters), ids(*learners))


def history(*items: tuple[int, Membership]) -> MembershipHistory:
    return MembershipHistory([MembershipAt(LogIndex(at), value) for at, value in items])


def test_history_is_cut_with_the_log() -> None:
    one, two, three = Membership(ids(0)), Membership(ids(0, 1)), Membership(ids(0, 1, 2))
    members = history((0, one), (5, two))
    members.append(LogIndex(9), three)
    members.truncate_from(LogIndex(9))
    assert (members.current, members.index) == (two, 5)
    members.truncate_from(LogIndex(2))
    assert members.current == one
    members.truncate_from(LogIndex(1))
    assert members.current == one


def test_history_has_the_membership_at_every_index_of_the_log() -> None:
    one, two, three = Membership(ids(0)), Membership(ids(0, 1)), Membership(ids(0, 1, 2))
    members = history((0, one), (5, two), (9, three))
    assert [members.at(LogIndex(index)) for index in (0, 4, 5, 8, 9, 40)] == [
        one,
        one,
        two,
        two,
        three,
        three,
    ]
    members.forget_before(LogIndex(6))
    assert [members.at(LogIndex(index)) for index in (6, 9)] == [two, three]


@pytest.mark.parametrize(("commit", "expected"), [(4, True), (5, False)])
def test_node_removed_by_its_own_uncommitted_entry_may_campaign(
    commit: int, expected: bool
) -> None:
    """Thesis 4.2.2."""
    members = history((0, Membership(ids(0, 1))), (5, Membership(ids(1))))
    assert members.may_campaign(MemberId(0), LogIndex(commit)) is expected
    assert members.may_campaign(MemberId(1), LogIndex(commit))
    assert not members.may_campaign(MemberId(7), LogIndex(commit))
