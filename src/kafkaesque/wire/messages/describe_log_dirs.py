"""DescribeLogDirs, API key 35 (tables only)."""

from __future__ import annotations

from kafkaesque.wire.table import Bool, Int16, Int32, Int64, Request, Response, String, Struct, f


class DescribableLogDirTopic(Struct):
    topic: String = f("0+")
    partitions: list[Int32] = f("0+")


class DescribeLogDirsRequest(Request, key=35, versions="1-5", flexible="2+"):
    topics: list[DescribableLogDirTopic] | None = f("0+", nullable="0+")


class DescribeLogDirsPartition(Struct):
    partition_index: Int32 = f("0+")
    partition_size: Int64 = f("0+")
    offset_lag: Int64 = f("0+")
    is_future_key: Bool = f("0+")


class DescribeLogDirsTopic(Struct):
    name: String = f("0+")
    partitions: list[DescribeLogDirsPartition] = f("0+")


class DescribeLogDirsResult(Struct):
    error_code: Int16 = f("0+")
    log_dir: String = f("0+")
    topics: list[DescribeLogDirsTopic] = f("0+")
    total_bytes: Int64 = f("4+", default=-1)
    usable_bytes: Int64 = f("4+", default=-1)
    is_cordoned: Bool = f("5+", default=False)


class DescribeLogDirsResponse(Response, key=35, versions="1-5", flexible="2+"):
    throttle_time_ms: Int32 = f("0+", default=0)
    error_code: Int16 = f("3+", default=0)
    results: list[DescribeLogDirsResult] = f("0+")
