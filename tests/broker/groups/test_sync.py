"""Edge cases of SyncGroup and Heartbeat. Scenarios are in tests/scripts/groups."""

from __future__ import annotations

import pytest
from tests.broker.groups.driver import Driver

from kafkaesque.broker.groups.types import HeartbeatAnswer, SyncRequest
from kafkaesque.model.errors import ErrorCode


@pytest.mark.parametrize(
    ("protocol_type", "protocol_name", "error"),
    [
        (None, None, ErrorCode.NONE),
        ("consumer", "range", ErrorCode.NONE),
        ("connect", "range", ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ("consumer", "sticky", ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
    ],
)
def test_protocol_in_the_request_must_match_the_group(
    protocol_type: str | None, protocol_name: str | None, error: ErrorCode
) -> None:
    driver = Driver()
    members, generation_id = driver.stable_group("a")
    token = driver.new_token()
    request = SyncRequest(
        group_id="g",
        generation_id=generation_id,
        member_id=members[0],
        protocol_type=protocol_type,
        protocol_name=protocol_name,
    )
    driver.finish(driver.registry.sync(request, token, driver.now))
    assert driver.synced(token).error is error


def test_member_without_an_assignment_from_the_leader_gets_an_empty_one() -> None:
    driver = Driver()
    tokens = [driver.join(client_id=name) for name in "ab"]
    driver.advance(0)
    leader_id, follower_id = (driver.joined(token).member_id for token in tokens)
    waiting = driver.sync(follower_id, 1)
    driver.sync(leader_id, 1, a_1=b"all", x_9=b"nobody")
    assert driver.synced(waiting).assignment == b""
    assert driver.synced(waiting).error is ErrorCode.NONE


def test_assignment_sent_by_a_follower_is_ignored() -> None:
    driver = Driver()
    tokens = [driver.join(client_id=name) for name in "ab"]
    driver.advance(0)
    leader_id, follower_id = (driver.joined(token).member_id for token in tokens)
    waiting = driver.sync(follower_id, 1, b_2=b"mine")
    assert waiting not in driver.answers
    driver.sync(leader_id, 1, b_2=b"yours")
    assert driver.synced(waiting).assignment == b"yours"


def test_heartbeat_of_an_old_generation_does_not_extend_the_session() -> None:
    driver = Driver()
    members, generation_id = driver.stable_group("a", session_timeout_ms=10_000)
    driver.advance(9)
    stale = driver.heartbeat(members[0], generation_id - 1)
    assert stale == HeartbeatAnswer(error=ErrorCode.ILLEGAL_GENERATION)
    driver.advance(1)
    gone = driver.heartbeat(members[0], generation_id)
    assert gone == HeartbeatAnswer(error=ErrorCode.UNKNOWN_MEMBER_ID)
