"""ListPartitionReassignments, API key 46 (tables only)."""

from __future__ import annotations

from kafkaesque.wire.table import Int16, Int32, Request, Response, String, Struct, f


class ListPartitionReassignmentsTopics(Struct):
    name: String = f("0+")
    partition_indexes: list[Int32] = f("0+")


class ListPartitionReassignmentsRequest(Request, key=46, versions="0", flexible="0+"):
    timeout_ms: Int32 = f("0+", default=60000)
    topics: list[ListPartitionReassignmentsTopics] | None = f("0+", nullable="0+", default=None)


class OngoingPartitionReassignment(Struct):
    partition_index: Int32 = f("0+")
    replicas: list[Int32] = f("0+")
    adding_replicas: list[Int32] = f("0+")
    removing_replicas: list[Int32] = f("0+")


class OngoingTopicReassignment(Struct):
    name: String = f("0+")
    partitions: list[OngoingPartitionReassignment] = f("0+")


class ListPartitionReassignmentsResponse(Response, key=46, versions="0", flexible="0+"):
    throttle_time_ms: Int32 = f("0+", default=0)
    error_code: Int16 = f("0+")
    error_message: String | None = f("0+", nullable="0+")
    topics: list[OngoingTopicReassignment] = f("0+")
