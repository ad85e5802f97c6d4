"""OffsetCommit, API key 8 (tables only)."""

from __future__ import annotations

from kafkaesque.wire.table import (
    NO_UUID,
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


class OffsetCommitRequestPartition(Struct):
    partition_index: Int32 = f("0+")
    committed_offset: Int64 = f("0+")
    committed_leader_epoch: Int32 = f("6+", default=-1)
    committed_metadata: String | None = f("0+", nullable="0+")


class OffsetCommitRequestTopic(Struct):
    name: String = f("0-9", default="")
    topic_id: Uuid = f("10+", default=NO_UUID)
    partitions: list[OffsetCommitRequestPartition] = f("0+")


class OffsetCommitRequest(Request, key=8, versions="2-10", flexible="8+"):
    group_id: String = f("0+")
    generation_id_or_member_epoch: Int32 = f("1+", default=-1)
    member_id: String = f("1+")
    group_instance_id: String | None = f("7+", nullable="7+", default=None)
    retention_time_ms: Int64 = f("2-4", default=-1)
    topics: list[OffsetCommitRequestTopic] = f("0+")


class OffsetCommitResponsePartition(Struct):
    partition_index: Int32 = f("0+")
    error_code: Int16 = f("0+")


class OffsetCommitResponseTopic(Struct):
    name: String = f("0-9", default="")
    topic_id: Uuid = f("10+", default=NO_UUID)
    partitions: list[OffsetCommitResponsePartition] = f("0+")


class OffsetCommitResponse(Response, key=8, versions="2-10", flexible="8+"):
    throttle_time_ms: Int32 = f("3+", default=0)
    topics: list[OffsetCommitResponseTopic] = f("0+")
