"""Corners of LeaveGroup; the stories are in tests/scripts/groups."""

from __future__ import annotations

from tests.broker.groups.driver import Driver

from kafkaesque.broker.groups.types import LeaveAnswer, LeftMember
from kafkaesque.model.errors import ErrorCode


def test_several_leave_with_one_rebalance() -> None:
    driver = Driver()
    members, generation_id = driver.stable_group("a", "b", "c")
    answer = driver.leave(members[0], "stranger", members[2])
    assert answer == LeaveAnswer(
        members=(
            LeftMember(members[0], None, ErrorCode.NONE),
            LeftMember("stranger", None, ErrorCode.UNKNOWN_MEMBER_ID),
            LeftMember(members[2], None, ErrorCode.NONE),
        )
    )
    rejoined = driver.joined(driver.join(members[1]))
    assert rejoined.generation_id == generation_id + 1


def test_member_with_a_pending_id_can_leave() -> None:
    driver = Driver()
    member_id = driver.joined(driver.join(api_version=4)).member_id
    answer = driver.leave(member_id)
    assert isinstance(answer, LeaveAnswer)
    assert answer.single_error is ErrorCode.NONE
    assert driver.registry.next_deadline() is None


def test_leaving_frees_requests_that_wait_elsewhere() -> None:
    driver = Driver()
    tokens = [driver.join(client_id=name) for name in "ab"]
    driver.advance(0)
    follower_id = driver.joined(tokens[1]).member_id
    waiting = driver.sync(follower_id, 1)
    driver.leave(follower_id)
    assert driver.synced(waiting).error is ErrorCode.UNKNOWN_MEMBER_ID
    assert driver.registry.waiting_count() == 0


def test_stranger_does_not_disturb_the_group() -> None:
    driver = Driver()
    members, generation_id = driver.stable_group("a")
    driver.leave("stranger")
    assert driver.heartbeat(members[0], generation_id).error is ErrorCode.NONE  # type: ignore[union-attr]
