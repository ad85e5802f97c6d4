from __future__ import annotations

import pytest
from tests.broker.groups.driver import JOIN

from kafkaesque.broker.groups.types import NOTHING, GroupEffects, LeaveAnswer, LeftMember
from kafkaesque.model.errors import ErrorCode


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (LeaveAnswer(), ErrorCode.NONE),
        (LeaveAnswer(error=ErrorCode.NOT_COORDINATOR), ErrorCode.NOT_COORDINATOR),
        (
            LeaveAnswer(members=(LeftMember("a", None, ErrorCode.UNKNOWN_MEMBER_ID),)),
            ErrorCode.UNKNOWN_MEMBER_ID,
        ),
    ],
)
def test_old_leave_answer_has_the_error_of_its_one_member(
    answer: LeaveAnswer, error: ErrorCode
) -> None:
    assert answer.single_error is error


def test_join_asks_for_what_its_version_knows() -> None:
    assert not JOIN.must_know_member_id
    assert not JOIN.can_skip_assignment


def test_nothing_is_no_effects() -> None:
    assert GroupEffects() == NOTHING
