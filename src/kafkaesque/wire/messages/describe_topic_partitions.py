"""DescribeTopicPartitions, API key 75 (tables only)."""

from __future__ import annotations

from kafkaesque.wire.table import Bool, Int16, Int32, Request, Response, String, Struct, Uuid, f


class TopicRequest(Struct):
    name: String = f("0+")


class Cursor(Struct):
    topic_name: String = f("0+")
    partition_index: Int32 = f("0+")


class DescribeTopicPartitionsRequest(Request, key=75, versions="0", flexible="0+"):
    topics: list[TopicRequest] = f("0+")
    response_partition_limit: Int32 = f("0+", default=2000)
    cursor: Cursor | None = f("0+", nullable="0+", default=None)


class DescribeTopicPartitionsResponsePartition(Struct):
    error_code: Int16 = f("0+")
    partition_index: Int32 = f("0+")
    leader_id: Int32 = f("0+")
    leader_epoch: Int32 = f("0+", default=-1)
    replica_nodes: list[Int32] = f("0+")
    isr_nodes: list[Int32] = f("0+")
    eligible_leader_replicas: list[Int32] | None = f("0+", nullable="0+", default=None)
    last_known_elr: list[Int32] | None = f("0+", nullable="0+", default=None)
    offline_replicas: list[Int32] = f("0+")


class DescribeTopicPartitionsResponseTopic(Struct):
    error_code: Int16 = f("0+")
    name: String | None = f("0+", nullable="0+")
    topic_id: Uuid = f("0+")
    is_internal: Bool = f("0+", default=False)
    partitions: list[DescribeTopicPartitionsResponsePartition] = f("0+")
    topic_authorized_operations: Int32 = f("0+", default=-2147483648)


class DescribeTopicPartitionsResponse(Response, key=75, versions="0", flexible="0+"):
    throttle_time_ms: Int32 = f("0+", default=0)
    topics: list[DescribeTopicPartitionsResponseTopic] = f("0+")
    next_cursor: Cursor | None = f("0+", nullable="0+", default=None)
