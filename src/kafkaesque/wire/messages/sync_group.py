"""SyncGroup, API key 14 (tables only)."""

from __future__ import annotations

from kafkaesque.wire.table import Bytes, Int16, Int32, Request, Response, String, Struct, f


class SyncGroupRequestAssignment(Struct):
    member_id: String = f("0+")
    assignment: Bytes = f("0+")


class SyncGroupRequest(Request, key=14, versions="0-5", flexible="4+"):
    group_id: String = f("0+")
    generation_id: Int32 = f("0+")
    member_id: String = f("0+")
    group_instance_id: String | None = f("3+", nullable="3+", default=None)
    protocol_type: String | None = f("5+", nullable="5+", default=None)
    protocol_name: String | None = f("5+", nullable="5+", default=None)
    assignments: list[SyncGroupRequestAssignment] = f("0+")


class SyncGroupResponse(Response, key=14, versions="0-5", flexible="4+"):
    throttle_time_ms: Int32 = f("1+", default=0)
    error_code: Int16 = f("0+")
    protocol_type: String | None = f("5+", nullable="5+", default=None)
    protocol_name: String | None = f("5+", nullable="5+", default=None)
    assignment: Bytes = f("0+")
