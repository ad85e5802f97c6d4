"""LeaveGroup: members say goodbye, or an operator removes static ones by name (KIP-345)."""

from __future__ import annotations

from kafkaesque.broker.groups import rebalance
from kafkaesque.broker.groups.group import Group
from kafkaesque.broker.groups.step import Step, TimerKind
from kafkaesque.broker.groups.transitions import GroupState
from kafkaesque.broker.groups.types import (
    NO_MEMBER_ID,
    LeaveAnswer,
    LeaveRequest,
    LeavingMember,
    LeftMember,
)
from kafkaesque.model.errors import ErrorCode


def leave(group: Group, request: LeaveRequest, token: int, step: Step) -> None:
    """Remove all that are named, then rebalance once."""
    results = tuple(
        LeftMember(member.member_id, member.group_instance_id, _remove(group, member, step))
        for member in request.members
    )
    step.answer(token, LeaveAnswer(members=results))
    has_changed = any(result.error is ErrorCode.NONE for result in results)
    if has_changed and group.state is not GroupState.EMPTY:
        rebalance.begin_or_complete(group, step)


def left_no_group(request: LeaveRequest) -> LeaveAnswer:
    """A group that is not here has no members: the request is in order, each name is unknown."""
    if not request.group_id:
        return LeaveAnswer(error=ErrorCode.INVALID_GROUP_ID)
    return LeaveAnswer(
        members=tuple(
            LeftMember(member.member_id, member.group_instance_id, ErrorCode.UNKNOWN_MEMBER_ID)
            for member in request.members
        )
    )


def _remove(group: Group, leaving: LeavingMember, step: Step) -> ErrorCode:
    member_id = leaving.member_id
    if member_id == NO_MEMBER_ID:
        name = leaving.group_instance_id
        named = None if name is None else group.roster.static_member_id(name)
        if named is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        member_id = named
    elif member_id in group.roster.pending_ids:
        group.roster.remove(member_id)
        step.cancel_timer(group, TimerKind.SESSION, member_id)
        return ErrorCode.NONE
    else:
        error = group.roster.membership_error(member_id, leaving.group_instance_id)
        if error is not ErrorCode.NONE:
            return error
    rebalance.remove(group, group.roster[member_id], step)
    return ErrorCode.NONE
