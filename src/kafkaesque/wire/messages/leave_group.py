"""LeaveGroup, API key 13 (tables only)."""

from __future__ import annotations

from kafkaesque.wire.table import Int16, Int32, Request, Response, String, Struct, f


class MemberIdentity(Struct):
    member_id: String = f("3+")
    group_instance_id: String | None = f("3+", nullable="3+", default=None)
    reason: String | None = f("5+", nullable="5+", default=None)


class LeaveGroupRequest(Request, key=13, versions="0-5", flexible="4+"):
    group_id: String = f("0+")
    member_id: String = f("0-2", default="")
    members: list[MemberIdentity] = f("3+", default=[])


class MemberResponse(Struct):
    member_id: String = f("3+")
    group_instance_id: String | None = f("3+", nullable="3+")
    error_code: Int16 = f("3+")


class LeaveGroupResponse(Response, key=13, versions="0-5", flexible="4+"):
    throttle_time_ms: Int32 = f("1+", default=0)
    error_code: Int16 = f("0+")
    members: list[MemberResponse] = f("3+", default=[])
