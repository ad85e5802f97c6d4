"""DescribeProducers, API key 61 (tables only)."""

from __future__ import annotations

from kafkaesque.wire.table import Int16, Int32, Int64, Request, Response, String, Struct, f


class TopicRequest(Struct):
    name: String = f("0+")
    partition_indexes: list[Int32] = f("0+")


class DescribeProducersRequest(Request, key=61, versions="0", flexible="0+"):
    topics: list[TopicRequest] = f("0+")


class ProducerState(Struct):
    producer_id: Int64 = f("0+")
    producer_epoch: Int32 = f("0+")
    last_sequence: Int32 = f("0+", default=-1)
    last_timestamp: Int64 = f("0+", default=-1)
    coordinator_epoch: Int32 = f("0+")
    current_txn_start_offset: Int64 = f("0+", default=-1)


class PartitionResponse(Struct):
    partition_index: Int32 = f("0+")
    error_code: Int16 = f("0+")
    error_message: String | None = f("0+", nullable="0+", default=None)
    active_producers: list[ProducerState] = f("0+")


class TopicResponse(Struct):
    name: String = f("0+")
    partitions: list[PartitionResponse] = f("0+")


class DescribeProducersResponse(Response, key=61, versions="0", flexible="0+"):
    throttle_time_ms: Int32 = f("0+", default=0)
    topics: list[TopicResponse] = f("0+")
