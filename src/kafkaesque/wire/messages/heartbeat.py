"""Heartbeat, API key 12 (tables only)."""

from __future__ import annotations

from kafkaesque.wire.table import Int16, Int32, Request, Response, String, f


class HeartbeatRequest(Request, key=12, versions="0-4", flexible="4+"):
    group_id: String = f("0+")
    generation_id: Int32 = f("0+")
    member_id: String = f("0+")
    group_instance_id: String | None = f("3+", nullable="3+", default=None)


class HeartbeatResponse(Response, key=12, versions="0-4", flexible="4+"):
    throttle_time_ms: Int32 = f("1+", default=0)
    error_code: Int16 = f("0+")
