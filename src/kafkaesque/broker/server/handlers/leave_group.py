"""LeaveGroup, API key 13.

v3  several members, static ones too (KIP-345)
v4  flexible
v5  reason (KIP-800)
"""

from __future__ import annotations

from kafkaesque.broker.groups.types import LeaveAnswer, LeaveRequest, LeavingMember
from kafkaesque.broker.server.call import Call
from kafkaesque.broker.server.context import Context
from kafkaesque.broker.server.handler import handler
from kafkaesque.model.errors import KafkaError
from kafkaesque.wire.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberResponse,
)

_MEMBERS_SINCE = 3


async def leave_group(
    context: Context, request: LeaveGroupRequest, call: Call
) -> LeaveGroupResponse:
    if call.version >= _MEMBERS_SINCE:
        members = tuple(
            LeavingMember(item.member_id, item.group_instance_id) for item in request.members
        )
    else:
        members = (LeavingMember(request.member_id),)
    leave = LeaveRequest(group_id=request.group_id, members=members)
    try:
        answer = await context.groups.of_group(request.group_id).ask(
            lambda registry, token, now: registry.leave(leave, token, now), LeaveAnswer
        )
    except KafkaError as error:
        answer = LeaveAnswer(error=error.code)
    if call.version < _MEMBERS_SINCE:
        return LeaveGroupResponse(error_code=answer.single_error)
    return LeaveGroupResponse(
        error_code=answer.error,
        members=[
            MemberResponse(
                member_id=left.member_id,
                group_instance_id=left.group_instance_id,
                error_code=left.error,
            )
            for left in answer.members
        ],
    )


HANDLER = handler(LeaveGroupRequest, versions=(0, 5))(leave_group)
