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


def test_old_join_version_lacks_later_features() -> None:
    assert not JOIN.must_know_member_id
    assert not JOIN.can_skip_assignment


def test_default_effects_are_nothing() -> None:
    assert GroupEffects() == NOTHING
