"""SyncGroup, API key 14.

v3  static members (KIP-345)
v4  flexible
v5  protocol type and name are required and checked (KIP-559)

The answer is sent when the leader has sent the assignment.
"""

from __future__ import annotations

from kafkaesque.broker.groups.types import SyncAnswer, SyncRequest
from kafkaesque.broker.server.call import Call
from kafkaesque.broker.server.context import Context
from kafkaesque.broker.server.handler import handler
from kafkaesque.model.errors import ErrorCode, KafkaError
from kafkaesque.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse

_PROTOCOL_SINCE = 5


async def sync_group(context: Context, request: SyncGroupRequest, call: Call) -> SyncGroupResponse:
    if call.version >= _PROTOCOL_SINCE and None in (request.protocol_type, request.protocol_name):
        return SyncGroupResponse(error_code=ErrorCode.INCONSISTENT_GROUP_PROTOCOL, assignment=b"")
    sync = SyncRequest(
        group_id=request.group_id,
        generation_id=request.generation_id,
        member_id=request.member_id,
        group_instance_id=request.group_instance_id,
        protocol_type=request.protocol_type,
        protocol_name=request.protocol_name,
        assignments=tuple((item.member_id, item.assignment) for item in request.assignments),
    )
    try:
        answer = await context.groups.of_group(request.group_id).ask(
            lambda registry, token, now: registry.sync(sync, token, now), SyncAnswer
        )
    except KafkaError as error:
        answer = SyncAnswer(error=error.code)
    return SyncGroupResponse(
        error_code=answer.error,
        protocol_type=answer.protocol_type,
        protocol_name=answer.protocol_name,
        assignment=answer.assignment,
    )


HANDLER = handler(SyncGroupRequest, versions=(0, 5))(sync_group)
