"""TxnOffsetCommit, API key 28 (tables only)."""

from __future__ import annotations

from kafkaesque.wire.table import Int16, Int32, Int64, Request, Response, String, Struct, f


class TxnOffsetCommitRequestPartition(Struct):
    partition_index: Int32 = f("0+")
    committed_offset: Int64 = f("0+")
    committed_leader_epoch: Int32 = f("2+", default=-1)
    committed_metadata: String | None = f("0+", nullable="0+")


class TxnOffsetCommitRequestTopic(Struct):
    name: String = f("0+")
    partitions: list[TxnOffsetCommitRequestPartition] = f("0+")


class TxnOffsetCommitRequest(Request, key=28, versions="0-5", flexible="3+"):
    transactional_id: String = f("0+")
    group_id: String = f("0+")
    producer_id: Int64 = f("0+")
    producer_epoch: Int16 = f("0+")
    generation_id: Int32 = f("3+", default=-1)
    member_id: String = f("3+", default="")
    group_instance_id: String | None = f("3+", nullable="3+", default=None)
    topics: list[TxnOffsetCommitRequestTopic] = f("0+")


class TxnOffsetCommitResponsePartition(Struct):
    partition_index: Int32 = f("0+")
    error_code: Int16 = f("0+")


class TxnOffsetCommitResponseTopic(Struct):
    name: String = f("0+")
    partitions: list[TxnOffsetCommitResponsePartition] = f("0+")


class TxnOffsetCommitResponse(Response, key=28, versions="0-5", flexible="3+"):
    throttle_time_ms: Int32 = f("0+", default=0)
    topics: list[TxnOffsetCommitResponseTopic] = f("0+")
