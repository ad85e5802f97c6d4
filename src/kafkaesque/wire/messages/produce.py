"""Produce, API key 0 (tables only)."""

from __future__ import annotations

from kafkaesque.wire.table import (
    NO_UUID,
    Int16,
    Int32,
    Int64,
    Records,
    Request,
    Response,
    String,
    Struct,
    Uuid,
    f,
)


class PartitionProduceData(Struct):
    index: Int32 = f("0+")
    records: Records | None = f("0+", nullable="0+")


class TopicProduceData(Struct):
    name: String = f("0-12", default="")
    topic_id: Uuid = f("13+", default=NO_UUID)
    partition_data: list[PartitionProduceData] = f("0+")


class ProduceRequest(Request, key=0, versions="3-13", flexible="9+"):
    transactional_id: String | None = f("3+", nullable="3+", default=None)
    acks: Int16 = f("0+")
    timeout_ms: Int32 = f("0+")
    topic_data: list[TopicProduceData] = f("0+")


class BatchIndexAndErrorMessage(Struct):
    batch_index: Int32 = f("8+")
    batch_index_error_message: String | None = f("8+", nullable="8+", default=None)


class LeaderIdAndEpoch(Struct):
    leader_id: Int32 = f("10+", default=-1)
    leader_epoch: Int32 = f("10+", default=-1)


class PartitionProduceResponse(Struct):
    index: Int32 = f("0+")
    error_code: Int16 = f("0+")
    base_offset: Int64 = f("0+")
    log_append_time_ms: Int64 = f("2+", default=-1)
    log_start_offset: Int64 = f("5+", default=-1)
    record_errors: list[BatchIndexAndErrorMessage] = f("8+", default=[])
    error_message: String | None = f("8+", nullable="8+", default=None)
    current_leader: LeaderIdAndEpoch | None = f("10+", tag=0, tagged="10+", default=None)


class TopicProduceResponse(Struct):
    name: String = f("0-12", default="")
    topic_id: Uuid = f("13+", default=NO_UUID)
    partition_responses: list[PartitionProduceResponse] = f("0+")


class NodeEndpoint(Struct):
    node_id: Int32 = f("10+")
    host: String = f("10+")
    port: Int32 = f("10+")
    rack: String | None = f("10+", nullable="10+", default=None)


class ProduceResponse(Response, key=0, versions="3-13", flexible="9+"):
    responses: list[TopicProduceResponse] = f("0+")
    throttle_time_ms: Int32 = f("1+", default=0)
    node_endpoints: list[NodeEndpoint] = f("10+", tag=0, tagged="10+", default=[])
