"""Metadata, API key 3 (tables only)."""

from __future__ import annotations

from kafkaesque.wire.table import (
    NO_UUID,
    Bool,
    Int16,
    Int32,
    Request,
    Response,
    String,
    Struct,
    Uuid,
    f,
)


class MetadataRequestTopic(Struct):
    topic_id: Uuid = f("10+", default=NO_UUID)
    name: String | None = f("0+", nullable="10+")


class MetadataRequest(Request, key=3, versions="0-13", flexible="9+"):
    topics: list[MetadataRequestTopic] | None = f("0+", nullable="1+")
    allow_auto_topic_creation: Bool = f("4+", default=True)
    include_cluster_authorized_operations: Bool = f("8-10", default=False)
    include_topic_authorized_operations: Bool = f("8+", default=False)


class MetadataResponseBroker(Struct):
    node_id: Int32 = f("0+")
    host: String = f("0+")
    port: Int32 = f("0+")
    rack: String | None = f("1+", nullable="1+", default=None)


class MetadataResponsePartition(Struct):
    error_code: Int16 = f("0+")
    partition_index: Int32 = f("0+")
    leader_id: Int32 = f("0+")
    leader_epoch: Int32 = f("7+", default=-1)
    replica_nodes: list[Int32] = f("0+")
    isr_nodes: list[Int32] = f("0+")
    offline_replicas: list[Int32] = f("5+", default=[])


class MetadataResponseTopic(Struct):
    error_code: Int16 = f("0+")
    name: String | None = f("0+", nullable="12+")
    topic_id: Uuid = f("10+", default=NO_UUID)
    is_internal: Bool = f("1+", default=False)
    partitions: list[MetadataResponsePartition] = f("0+")
    topic_authorized_operations: Int32 = f("8+", default=-2147483648)


class MetadataResponse(Response, key=3, versions="0-13", flexible="9+"):
    throttle_time_ms: Int32 = f("3+", default=0)
    brokers: list[MetadataResponseBroker] = f("0+")
    cluster_id: String | None = f("2+", nullable="2+", default=None)
    controller_id: Int32 = f("1+", default=-1)
    topics: list[MetadataResponseTopic] = f("0+")
    cluster_authorized_operations: Int32 = f("8-10", default=-2147483648)
    error_code: Int16 = f("13+", default=0)
