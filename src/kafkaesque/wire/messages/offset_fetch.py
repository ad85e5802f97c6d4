"""OffsetFetch, API key 9 (tables only)."""

from __future__ import annotations

from kafkaesque.wire.table import (
    NO_UUID,
    Bool,
    Int16,
    Int32,
    Int64,
    Request,
    Response,
    String,
    Struct,
    Uuid,
    f,
)


class OffsetFetchRequestTopic(Struct):
    name: String = f("0-7")
    partition_indexes: list[Int32] = f("0-7")


class OffsetFetchRequestTopics(Struct):
    name: String = f("8-9", default="")
    topic_id: Uuid = f("10+", default=NO_UUID)
    partition_indexes: list[Int32] = f("8+")


class OffsetFetchRequestGroup(Struct):
    group_id: String = f("8+")
    member_id: String | None = f("9+", nullable="9+", default=None)
    member_epoch: Int32 = f("9+", default=-1)
    topics: list[OffsetFetchRequestTopics] | None = f("8+", nullable="8+")


class OffsetFetchRequest(Request, key=9, versions="1-10", flexible="6+"):
    group_id: String = f("0-7", default="")
    topics: list[OffsetFetchRequestTopic] | None = f("0-7", nullable="2-7", default=[])
    groups: list[OffsetFetchRequestGroup] = f("8+", default=[])
    require_stable: Bool = f("7+", default=False)


class OffsetFetchResponsePartition(Struct):
    partition_index: Int32 = f("0-7")
    committed_offset: Int64 = f("0-7")
    committed_leader_epoch: Int32 = f("5-7", default=-1)
    metadata: String | None = f("0-7", nullable="0-7")
    error_code: Int16 = f("0-7")


class OffsetFetchResponseTopic(Struct):
    name: String = f("0-7")
    partitions: list[OffsetFetchResponsePartition] = f("0-7")


class OffsetFetchResponsePartitions(Struct):
    partition_index: Int32 = f("8+")
    committed_offset: Int64 = f("8+")
    committed_leader_epoch: Int32 = f("8+", default=-1)
    metadata: String | None = f("8+", nullable="8+")
    error_code: Int16 = f("8+")


class OffsetFetchResponseTopics(Struct):
    name: String = f("8-9", default="")
    topic_id: Uuid = f("10+", default=NO_UUID)
    partitions: list[OffsetFetchResponsePartitions] = f("8+")


class OffsetFetchResponseGroup(Struct):
    group_id: String = f("8+")
    topics: list[OffsetFetchResponseTopics] = f("8+")
    error_code: Int16 = f("8+", default=0)


class OffsetFetchResponse(Response, key=9, versions="1-10", flexible="6+"):
    throttle_time_ms: Int32 = f("3+", default=0)
    topics: list[OffsetFetchResponseTopic] = f("0-7", default=[])
    error_code: Int16 = f("2-7", default=0)
    groups: list[OffsetFetchResponseGroup] = f("8+", default=[])
