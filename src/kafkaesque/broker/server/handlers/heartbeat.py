"""Heartbeat, API key 12.

v3  static members (KIP-345)
v4  flexible
"""

from __future__ import annotations

from kafkaesque.broker.groups import types
from kafkaesque.broker.server.call import Call
from kafkaesque.broker.server.context import Context
from kafkaesque.broker.server.handler import handler
from kafkaesque.model.errors import CoordinatorLoading, ErrorCode, KafkaError
from kafkaesque.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse


async def heartbeat(context: Context, request: HeartbeatRequest, call: Call) -> HeartbeatResponse:
    beat = types.MemberHeartbeat(
        group_id=request.group_id,
        generation_id=request.generation_id,
        member_id=request.member_id,
        group_instance_id=request.group_instance_id,
    )
    try:
        answer = await context.groups.of_group(request.group_id).ask(
            lambda registry, token, now: registry.heartbeat(beat, token, now),
            types.HeartbeatAnswer,
        )
    except CoordinatorLoading:
        # As in Kafka: the member is alive, and an error would only make it rejoin.
        return HeartbeatResponse(error_code=ErrorCode.NONE)
    except KafkaError as error:
        return HeartbeatResponse(error_code=error.code)
    return HeartbeatResponse(error_code=answer.error)


HANDLER = handler(HeartbeatRequest, versions=(0, 4))(heartbeat)
