from __future__ import annotations

import pytest
from tests.broker.groups.test_members import member

from kafkaesque.model.errors import InvariantBroken


@pytest.mark.parametrize(
    ("is_new", "join_token", "sync_token", "needs_none"),
    [
        (False, None, None, False),
        (False, 1, None, True),
        (False, None, 1, True),
        (True, 1, None, False),
    ],
)
def test_waiting_member_needs_no_heartbeat_unless_it_is_new(
    is_new: bool, join_token: int | None, sync_token: int | None, needs_none: bool
) -> None:
    made = member("a")
    made.is_new, made.join_token, made.sync_token = is_new, join_token, sync_token
    assert made.needs_no_heartbeat is needs_none


def test_member_votes_for_its_first_candidate() -> None:
    assert member("a", "x", "y", "z").vote({"z", "y"}) == "y"
    with pytest.raises(InvariantBroken):
        member("a", "x").vote({"y"})


def test_metadata_of_an_unknown_protocol_is_a_broken_invariant() -> None:
    with pytest.raises(InvariantBroken):
        member("a", "x").metadata("y")
