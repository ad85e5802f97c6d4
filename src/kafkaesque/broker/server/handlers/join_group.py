"""JoinGroup, API key 11.

v1  rebalance timeout
v4  a new dynamic member is first given an id (KIP-394)
v5  static members (KIP-345)
v6  flexible
v7  protocol type in the answer (KIP-559)
v8  reason (KIP-800)
v9  skip_assignment (KIP-814)

The answer is sent when all members of the group have joined.
"""

from __future__ import annotations

from kafkaesque.broker.groups.types import JoinAnswer, JoinRequest, Protocol
from kafkaesque.broker.server.call import Call
from kafkaesque.broker.server.context import Context
from kafkaesque.broker.server.handler import handler
from kafkaesque.model.errors import KafkaError
from kafkaesque.wire.messages.join_group import (
    JoinGroupRequest,
    JoinGroupResponse,
    JoinGroupResponseMember,
)


async def join_group(context: Context, request: JoinGroupRequest, call: Call) -> JoinGroupResponse:
    join = JoinRequest(
        group_id=request.group_id,
        member_id=request.member_id,
        group_instance_id=request.group_instance_id,
        client_id=call.client_id or "",
        client_host=f"/{call.client_host}",
        session_timeout_ms=request.session_timeout_ms,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        protocol_type=request.protocol_type,
        protocols=tuple(Protocol(item.name, item.metadata) for item in request.protocols),
        api_version=call.version,
    )
    try:
        answer = await context.groups.of_group(request.group_id).ask(
            lambda registry, token, now: registry.join(join, token, now), JoinAnswer
        )
    except KafkaError as error:
        answer = JoinAnswer(error=error.code, member_id=request.member_id)
    name = answer.protocol_name
    return JoinGroupResponse(
        error_code=answer.error,
        generation_id=answer.generation_id,
        protocol_type=answer.protocol_type,
        protocol_name=name if call.version >= 7 else name or "",
        leader=answer.leader,
        skip_assignment=answer.skip_assignment,
        member_id=answer.member_id,
        members=[
            JoinGroupResponseMember(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                metadata=member.metadata,
            )
            for member in answer.members
        ],
    )


HANDLER = handler(JoinGroupRequest, versions=(0, 9))(join_group)
