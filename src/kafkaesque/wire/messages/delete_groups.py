"""DeleteGroups, API key 42 (tables only)."""

from __future__ import annotations

from kafkaesque.wire.table import Int16, Int32, Request, Response, String, Struct, f


class DeleteGroupsRequest(Request, key=42, versions="0-2", flexible="2+"):
    groups_names: list[String] = f("0+")


class DeletableGroupResult(Struct):
    group_id: String = f("0+")
    error_code: Int16 = f("0+")


class DeleteGroupsResponse(Response, key=42, versions="0-2", flexible="2+"):
    throttle_time_ms: Int32 = f("0+", default=0)
    results: list[DeletableGroupResult] = f("0+")
