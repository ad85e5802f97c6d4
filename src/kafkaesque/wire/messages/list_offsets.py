"""ListOffsets, API key 2 (tables only)."""

from __future__ import annotations

from kafkaesque.wire.table import Int8, Int16, Int32, Int64, Request, Response, String, Struct, f


class ListOffsetsPartition(Struct):
    partition_index: Int32 = f("0+")
    current_leader_epoch: Int32 = f("4+", default=-1)
    timestamp: Int64 = f("0+")


class ListOffsetsTopic(Struct):
    name: String = f("0+")
    partitions: list[ListOffsetsPartition] = f("0+")


class ListOffsetsRequest(Request, key=2, versions="1-11", flexible="6+"):
    replica_id: Int32 = f("0+")
    isolation_level: Int8 = f("2+", default=0)
    topics: list[ListOffsetsTopic] = f("0+")
    timeout_ms: Int32 = f("10+", default=0)


class ListOffsetsPartitionResponse(Struct):
    partition_index: Int32 = f("0+")
    error_code: Int16 = f("0+")
    timestamp: Int64 = f("1+", default=-1)
    offset: Int64 = f("1+", default=-1)
    leader_epoch: Int32 = f("4+", default=-1)


class ListOffsetsTopicResponse(Struct):
    name: String = f("0+")
    partitions: list[ListOffsetsPartitionResponse] = f("0+")


class ListOffsetsResponse(Response, key=2, versions="1-11", flexible="6+"):
    throttle_time_ms: Int32 = f("2+", default=0)
    topics: list[ListOffsetsTopicResponse] = f("0+")
