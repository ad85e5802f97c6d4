"""Message tables of requests that our own broker does not support, for other Kafkas.

DescribeAcls (29), DescribeClientQuotas (48), DescribeUserScramCredentials (50), ConsumerGroupDescribe
(69, KIP-848). Not in `wire.messages`: the broker accepts every request that has a table there.
"""

from __future__ import annotations

from kafkaesque.wire.table import (
    Bool,
    Float64,
    Int8,
    Int16,
    Int32,
    Request,
    Response,
    String,
    Struct,
    Uuid,
    f,
)


class DescribeAclsRequest(Request, key=29, versions="1-3", flexible="2+"):
    resource_type_filter: Int8 = f("0+")
    resource_name_filter: String | None = f("0+", nullable="0+")
    pattern_type_filter: Int8 = f("1+", default=3)
    principal_filter: String | None = f("0+", nullable="0+")
    host_filter: String | None = f("0+", nullable="0+")
    operation: Int8 = f("0+")
    permission_type: Int8 = f("0+")


class AclDescription(Struct):
    principal: String = f("0+")
    host: String = f("0+")
    operation: Int8 = f("0+")
    permission_type: Int8 = f("0+")


class DescribeAclsResource(Struct):
    resource_type: Int8 = f("0+")
    resource_name: String = f("0+")
    pattern_type: Int8 = f("1+", default=3)
    acls: list[AclDescription] = f("0+")


class DescribeAclsResponse(Response, key=29, versions="1-3", flexible="2+"):
    throttle_time_ms: Int32 = f("0+", default=0)
    error_code: Int16 = f("0+")
    error_message: String | None = f("0+", nullable="0+")
    resources: list[DescribeAclsResource] = f("0+")


class QuotaComponent(Struct):
    entity_type: String = f("0+")
    match_type: Int8 = f("0+")
    match: String | None = f("0+", nullable="0+")


class DescribeClientQuotasRequest(Request, key=48, versions="0-1", flexible="1+"):
    components: list[QuotaComponent] = f("0+")
    strict: Bool = f("0+")


class QuotaEntity(Struct):
    entity_type: String = f("0+")
    entity_name: String | None = f("0+", nullable="0+")


class QuotaValue(Struct):
    key: String = f("0+")
    value: Float64 = f("0+")


class QuotaEntry(Struct):
    entity: list[QuotaEntity] = f("0+")
    values: list[QuotaValue] = f("0+")


class DescribeClientQuotasResponse(Response, key=48, versions="0-1", flexible="1+"):
    throttle_time_ms: Int32 = f("0+", default=0)
    error_code: Int16 = f("0+")
    error_message: String | None = f("0+", nullable="0+")
    entries: list[QuotaEntry] | None = f("0+", nullable="0+")


class ScramUser(Struct):
    name: String = f("0+")


class DescribeUserScramCredentialsRequest(Request, key=50, versions="0", flexible="0+"):
    users: list[ScramUser] | None = f("0+", nullable="0+")


class ScramCredential(Struct):
    mechanism: Int8 = f("0+")
    iterations: Int32 = f("0+")


class ScramResult(Struct):
    user: String = f("0+")
    error_code: Int16 = f("0+")
    error_message: String | None = f("0+", nullable="0+")
    credential_infos: list[ScramCredential] = f("0+")


class DescribeUserScramCredentialsResponse(Response, key=50, versions="0", flexible="0+"):
    throttle_time_ms: Int32 = f("0+", default=0)
    error_code: Int16 = f("0+")
    error_message: String | None = f("0+", nullable="0+")
    results: list[ScramResult] = f("0+")


class ConsumerGroupDescribeRequest(Request, key=69, versions="0-1", flexible="0+"):
    group_ids: list[String] = f("0+")
    include_authorized_operations: Bool = f("0+", default=False)


class MemberPartitions(Struct):
    topic_id: Uuid = f("0+")
    topic_name: String = f("0+")
    partitions: list[Int32] = f("0+")


class MemberAssignment(Struct):
    topic_partitions: list[MemberPartitions] = f("0+")


class ConsumerGroupMember(Struct):
    member_id: String = f("0+")
    instance_id: String | None = f("0+", nullable="0+", default=None)
    rack_id: String | None = f("0+", nullable="0+", default=None)
    member_epoch: Int32 = f("0+")
    client_id: String = f("0+")
    client_host: String = f("0+")
    subscribed_topic_names: list[String] = f("0+")
    subscribed_topic_regex: String | None = f("0+", nullable="0+", default=None)
    assignment: MemberAssignment = f("0+")
    target_assignment: MemberAssignment = f("0+")
    member_type: Int8 = f("1+", default=-1)


class DescribedConsumerGroup(Struct):
    error_code: Int16 = f("0+")
    error_message: String | None = f("0+", nullable="0+", default=None)
    group_id: String = f("0+")
    group_state: String = f("0+")
    group_epoch: Int32 = f("0+")
    assignment_epoch: Int32 = f("0+")
    assignor_name: String = f("0+")
    members: list[ConsumerGroupMember] = f("0+")
    authorized_operations: Int32 = f("0+", default=-2147483648)


class ConsumerGroupDescribeResponse(Response, key=69, versions="0-1", flexible="0+"):
    throttle_time_ms: Int32 = f("0+", default=0)
    groups: list[DescribedConsumerGroup] = f("0+")
