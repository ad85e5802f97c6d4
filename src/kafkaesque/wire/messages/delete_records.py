"""DeleteRecords, API key 21 (tables only)."""

from __future__ import annotations

from kafkaesque.wire.table import Int16, Int32, Int64, Request, Response, String, Struct, f


class DeleteRecordsPartition(Struct):
    partition_index: Int32 = f("0+")
    offset: Int64 = f("0+")


class DeleteRecordsTopic(Struct):
    name: String = f("0+")
    partitions: list[DeleteRecordsPartition] = f("0+")


class DeleteRecordsRequest(Request, key=21, versions="0-2", flexible="2+"):
    topics: list[DeleteRecordsTopic] = f("0+")
    timeout_ms: Int32 = f("0+")


class DeleteRecordsPartitionResult(Struct):
    partition_index: Int32 = f("0+")
    low_watermark: Int64 = f("0+")
    error_code: Int16 = f("0+")


class DeleteRecordsTopicResult(Struct):
    name: String = f("0+")
    partitions: list[DeleteRecordsPartitionResult] = f("0+")


class DeleteRecordsResponse(Response, key=21, versions="0-2", flexible="2+"):
    throttle_time_ms: Int32 = f("0+", default=0)
    topics: list[DeleteRecordsTopicResult] = f("0+")
