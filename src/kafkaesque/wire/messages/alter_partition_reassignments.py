"""AlterPartitionReassignments, API key 45 (tables only)."""

from __future__ import annotations

from kafkaesque.wire.table import Bool, Int16, Int32, Request, Response, String, Struct, f


class ReassignablePartition(Struct):
    partition_index: Int32 = f("0+")
    replicas: list[Int32] | None = f("0+", nullable="0+", default=None)


class ReassignableTopic(Struct):
    name: String = f("0+")
    partitions: list[ReassignablePartition] = f("0+")


class AlterPartitionReassignmentsRequest(Request, key=45, versions="0-1", flexible="0+"):
    timeout_ms: Int32 = f("0+", default=60000)
    allow_replication_factor_change: Bool = f("1+", default=True)
    topics: list[ReassignableTopic] = f("0+")


class ReassignablePartitionResponse(Struct):
    partition_index: Int32 = f("0+")
    error_code: Int16 = f("0+")
    error_message: String | None = f("0+", nullable="0+")


class ReassignableTopicResponse(Struct):
    name: String = f("0+")
    partitions: list[ReassignablePartitionResponse] = f("0+")


class AlterPartitionReassignmentsResponse(Response, key=45, versions="0-1", flexible="0+"):
    throttle_time_ms: Int32 = f("0+", default=0)
    allow_replication_factor_change: Bool = f("1+", default=True)
    error_code: Int16 = f("0+")
    error_message: String | None = f("0+", nullable="0+")
    responses: list[ReassignableTopicResponse] = f("0+")
