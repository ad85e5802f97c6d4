"""DescribeQuorum, API key 55 (tables only)."""

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
    UInt16,
    Uuid,
    f,
)


class PartitionData(Struct):
    partition_index: Int32 = f("0+")


class TopicData(Struct):
    topic_name: String = f("0+")
    partitions: list[PartitionData] = f("0+")


class DescribeQuorumRequest(Request, key=55, versions="0-2", flexible="0+"):
    topics: list[TopicData] = f("0+")


class ReplicaState(Struct):
    replica_id: Int32 = f("0+")
    replica_directory_id: Uuid = f("2+", default=NO_UUID)
    log_end_offset: Int64 = f("0+")
    last_fetch_timestamp: Int64 = f("1+", default=-1)
    last_caught_up_timestamp: Int64 = f("1+", default=-1)


class ResponsePartitionData(Struct):
    partition_index: Int32 = f("0+")
    error_code: Int16 = f("0+")
    error_message: String | None = f("2+", nullable="2+", default="")
    leader_id: Int32 = f("0+")
    leader_epoch: Int32 = f("0+")
    high_watermark: Int64 = f("0+")
    current_voters: list[ReplicaState] = f("0+")
    observers: list[ReplicaState] = f("0+")


class ResponseTopicData(Struct):
    topic_name: String = f("0+")
    partitions: list[ResponsePartitionData] = f("0+")


class Listener(Struct):
    name: String = f("2+")
    host: String = f("2+")
    port: UInt16 = f("2+")


class Node(Struct):
    node_id: Int32 = f("2+")
    listeners: list[Listener] = f("2+")


class DescribeQuorumResponse(Response, key=55, versions="0-2", flexible="0+"):
    error_code: Int16 = f("0+")
    error_message: String | None = f("2+", nullable="2+", default="")
    topics: list[ResponseTopicData] = f("0+")
    nodes: list[Node] = f("2+", default=[])
