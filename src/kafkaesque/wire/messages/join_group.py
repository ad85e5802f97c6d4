"""JoinGroup, API key 11 (tables only)."""

from __future__ import annotations

from kafkaesque.wire.table import Bool, Bytes, Int16, Int32, Request, Response, String, Struct, f


class JoinGroupRequestProtocol(Struct):
    name: String = f("0+")
    metadata: Bytes = f("0+")


class JoinGroupRequest(Request, key=11, versions="0-9", flexible="6+"):
    group_id: String = f("0+")
    session_timeout_ms: Int32 = f("0+")
    rebalance_timeout_ms: Int32 = f("1+", default=-1)
    member_id: String = f("0+")
    group_instance_id: String | None = f("5+", nullable="5+", default=None)
    protocol_type: String = f("0+")
    protocols: list[JoinGroupRequestProtocol] = f("0+")
    reason: String | None = f("8+", nullable="8+", default=None)


class JoinGroupResponseMember(Struct):
    member_id: String = f("0+")
    group_instance_id: String | None = f("5+", nullable="5+", default=None)
    metadata: Bytes = f("0+")


class JoinGroupResponse(Response, key=11, versions="0-9", flexible="6+"):
    throttle_time_ms: Int32 = f("2+", default=0)
    error_code: Int16 = f("0+")
    generation_id: Int32 = f("0+", default=-1)
    protocol_type: String | None = f("7+", nullable="7+", default=None)
    protocol_name: String | None = f("0+", nullable="7+")
    leader: String = f("0+")
    skip_assignment: Bool = f("9+", default=False)
    member_id: String = f("0+")
    members: list[JoinGroupResponseMember] = f("0+")
