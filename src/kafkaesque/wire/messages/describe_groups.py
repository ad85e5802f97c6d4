"""DescribeGroups, API key 15 (tables only)."""

from __future__ import annotations

from kafkaesque.wire.table import Bool, Bytes, Int16, Int32, Request, Response, String, Struct, f


class DescribeGroupsRequest(Request, key=15, versions="0-6", flexible="5+"):
    groups: list[String] = f("0+")
    include_authorized_operations: Bool = f("3+", default=False)


class DescribedGroupMember(Struct):
    member_id: String = f("0+")
    group_instance_id: String | None = f("4+", nullable="4+", default=None)
    client_id: String = f("0+")
    client_host: String = f("0+")
    member_metadata: Bytes = f("0+")
    member_assignment: Bytes = f("0+")


class DescribedGroup(Struct):
    error_code: Int16 = f("0+")
    error_message: String | None = f("6+", nullable="6+", default=None)
    group_id: String = f("0+")
    group_state: String = f("0+")
    protocol_type: String = f("0+")
    protocol_data: String = f("0+")
    members: list[DescribedGroupMember] = f("0+")
    authorized_operations: Int32 = f("3+", default=-2147483648)


class DescribeGroupsResponse(Response, key=15, versions="0-6", flexible="5+"):
    throttle_time_ms: Int32 = f("1+", default=0)
    groups: list[DescribedGroup] = f("0+")
