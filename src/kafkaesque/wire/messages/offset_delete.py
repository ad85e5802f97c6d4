"""OffsetDelete, API key 47 (tables only)."""

from __future__ import annotations

from kafkaesque.wire.table import Int16, Int32, Request, Response, String, Struct, f


class OffsetDeleteRequestPartition(Struct):
    partition_index: Int32 = f("0+")


class OffsetDeleteRequestTopic(Struct):
    name: String = f("0+")
    partitions: list[OffsetDeleteRequestPartition] = f("0+")


class OffsetDeleteRequest(Request, key=47, versions="0"):
    group_id: String = f("0+")
    topics: list[OffsetDeleteRequestTopic] = f("0+")


class OffsetDeleteResponsePartition(Struct):
    partition_index: Int32 = f("0+")
    error_code: Int16 = f("0+")


class OffsetDeleteResponseTopic(Struct):
    name: String = f("0+")
    partitions: list[OffsetDeleteResponsePartition] = f("0+")


class OffsetDeleteResponse(Response, key=47, versions="0"):
    error_code: Int16 = f("0+")
    throttle_time_ms: Int32 = f("0+", default=0)
    topics: list[OffsetDeleteResponseTopic] = f("0+")
