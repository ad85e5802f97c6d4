"""OffsetForLeaderEpoch, API key 23 (tables only)."""

from __future__ import annotations

from kafkaesque.wire.table import Int16, Int32, Int64, Request, Response, String, Struct, f


class OffsetForLeaderPartition(Struct):
    partition: Int32 = f("0+")
    current_leader_epoch: Int32 = f("2+", default=-1)
    leader_epoch: Int32 = f("0+")


class OffsetForLeaderTopic(Struct):
    topic: String = f("0+")
    partitions: list[OffsetForLeaderPartition] = f("0+")


class OffsetForLeaderEpochRequest(Request, key=23, versions="2-4", flexible="4+"):
    replica_id: Int32 = f("3+", default=-2)
    topics: list[OffsetForLeaderTopic] = f("0+")


class EpochEndOffset(Struct):
    error_code: Int16 = f("0+")
    partition: Int32 = f("0+")
    leader_epoch: Int32 = f("1+", default=-1)
    end_offset: Int64 = f("0+", default=-1)


class OffsetForLeaderTopicResult(Struct):
    topic: String = f("0+")
    partitions: list[EpochEndOffset] = f("0+")


class OffsetForLeaderEpochResponse(Response, key=23, versions="2-4", flexible="4+"):
    throttle_time_ms: Int32 = f("2+", default=0)
    topics: list[OffsetForLeaderTopicResult] = f("0+")
