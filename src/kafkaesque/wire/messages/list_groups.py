"""ListGroups, API key 16 (tables only)."""

from __future__ import annotations

from kafkaesque.wire.table import Int16, Int32, Request, Response, String, Struct, f


class ListGroupsRequest(Request, key=16, versions="0-5", flexible="3+"):
    states_filter: list[String] = f("4+", default=[])
    types_filter: list[String] = f("5+", default=[])


class ListedGroup(Struct):
    group_id: String = f("0+")
    protocol_type: String = f("0+")
    group_state: String = f("4+", default="")
    group_type: String = f("5+", default="")


class ListGroupsResponse(Response, key=16, versions="0-5", flexible="3+"):
    throttle_time_ms: Int32 = f("1+", default=0)
    error_code: Int16 = f("0+")
    groups: list[ListedGroup] = f("0+")
