from __future__ import annotations

import pytest

from kafkaesque.broker.groups.members import Member, Roster
from kafkaesque.broker.groups.types import Protocol
from kafkaesque.model.errors import ErrorCode, InvariantBroken


def member(
    member_id: str, *names: str, instance: str | None = None, token: int | None = None
) -> Member:
    return Member(
        member_id=member_id,
        group_instance_id=instance,
        client_id="c",
        client_host="/h",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=len(member_id) * 1000,
        protocols=tuple(Protocol(name, b"") for name in names or ["range"]),
        join_token=token,
    )


def roster(*members: Member) -> Roster:
    made = Roster()
    for each in members:
        made.add(each)
    return made


def test_first_member_leads_and_the_next_inherits() -> None:
    made = roster(member("a"), member("b"), member("c"))
    made.remove("a")
    assert made.leader_id == "b"
    made.remove("c")
    assert made.leader_id == "b"
    made.remove("b")
    assert made.leader_id is None


def test_member_cannot_join_twice() -> None:
    with pytest.raises(InvariantBroken):
        roster(member("a"), member("a"))
    with pytest.raises(InvariantBroken):
        roster(member("a", instance="i"), member("b", instance="i"))


def test_joined_members_are_counted_through_every_change() -> None:
    made = roster(member("a", token=1), member("b"))
    assert (made.awaiting_join, made.all_joined) == (1, False)
    made.set_join_token(made["b"], 2)
    made.set_join_token(made["b"], 3)
    assert (made.awaiting_join, made.all_joined) == (2, True)
    made.remove("a")
    made.set_join_token(made["b"], None)
    assert made.awaiting_join == 0


def test_pending_member_id_counts_as_missing_until_it_joins_or_leaves() -> None:
    made = roster(member("a", token=1))
    made.pending_ids |= {"b", "c"}
    made.add(member("b", token=2))
    assert not made.all_joined
    made.remove("c")
    assert made.all_joined


def test_lead_passes_to_a_member_that_rejoined() -> None:
    made = roster(member("a"), member("b"), member("c", token=1))
    assert made.elect_joined_leader()
    assert made.leader_id == "c"
    made.set_join_token(made["c"], None)
    assert not made.elect_joined_leader()
    assert not Roster().elect_joined_leader()


@pytest.mark.parametrize(
    ("likes", "chosen"),
    [
        ([("range", "sticky"), ("sticky", "range"), ("sticky", "range")], "sticky"),
        ([("range", "sticky"), ("sticky", "range")], "range"),
        ([("range", "sticky"), ("sticky",), ("range", "sticky")], "sticky"),
        ([("odd", "range"), ("range",)], "range"),
    ],
)
def test_protocol_is_chosen_by_votes_among_those_that_all_members_support(
    likes: list[tuple[str, ...]], chosen: str
) -> None:
    made = roster(*(member(str(number), *names) for number, names in enumerate(likes)))
    assert made.select_protocol() == chosen


def test_protocols_of_removed_and_changed_members_no_longer_count() -> None:
    made = roster(member("a", "range", "sticky"), member("b", "range"))
    assert not made.supports_any(["sticky"])
    made.remove("b")
    assert made.supports_any(["sticky"])
    made.set_protocols(made["a"], (Protocol("new", b""),))
    assert not made.supports_any(["sticky", "range"])
    assert made.supports_any(["new"])


@pytest.mark.parametrize(
    ("member_id", "instance", "error"),
    [
        ("a", None, ErrorCode.NONE),
        ("s", "i", ErrorCode.NONE),
        ("s", None, ErrorCode.NONE),
        ("x", None, ErrorCode.UNKNOWN_MEMBER_ID),
        ("x", "i", ErrorCode.FENCED_INSTANCE_ID),
        ("a", "i", ErrorCode.FENCED_INSTANCE_ID),
        ("s", "other", ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_membership_is_checked_as_kafka_does(
    member_id: str, instance: str | None, error: ErrorCode
) -> None:
    made = roster(member("a"), member("s", instance="i"))
    assert made.membership_error(member_id, instance) is error


def test_replacement_takes_name_and_lead() -> None:
    old = member("old", instance="i")
    made = roster(old, member("b"))
    made.replace_static(old, member("new", instance="i"))
    assert made.static_member_id("i") == "new"
    assert made.leader_id == "new"
    assert "old" not in made
    with pytest.raises(InvariantBroken):
        made.replace_static(made["b"], member("c"))


def test_slowest_member_sets_the_rebalance_timeout() -> None:
    assert roster(member("a"), member("bbb"), member("cc")).rebalance_timeout_ms == 3000
    assert Roster().rebalance_timeout_ms == 0
