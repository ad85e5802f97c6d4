"""CreateTopics, API key 19 (tables only)."""

from __future__ import annotations

from kafkaesque.wire.table import (
    NO_UUID,
    Bool,
    Int8,
    Int16,
    Int32,
    Request,
    Response,
    String,
    Struct,
    Uuid,
    f,
)


class CreatableReplicaAssignment(Struct):
    partition_index: Int32 = f("0+")
    broker_ids: list[Int32] = f("0+")


class CreatableTopicConfig(Struct):
    name: String = f("0+")
    value: String | None = f("0+", nullable="0+")


class CreatableTopic(Struct):
    name: String = f("0+")
    num_partitions: Int32 = f("0+")
    replication_factor: Int16 = f("0+")
    assignments: list[CreatableReplicaAssignment] = f("0+")
    configs: list[CreatableTopicConfig] = f("0+")


class CreateTopicsRequest(Request, key=19, versions="2-7", flexible="5+"):
    topics: list[CreatableTopic] = f("0+")
    timeout_ms: Int32 = f("0+", default=60000)
    validate_only: Bool = f("1+", default=False)


class CreatableTopicConfigs(Struct):
    name: String = f("5+")
    value: String | None = f("5+", nullable="5+")
    read_only: Bool = f("5+")
    config_source: Int8 = f("5+", default=-1)
    is_sensitive: Bool = f("5+")


class CreatableTopicResult(Struct):
    name: String = f("0+")
    topic_id: Uuid = f("7+", default=NO_UUID)
    error_code: Int16 = f("0+")
    error_message: String | None = f("1+", nullable="0+")
    topic_config_error_code: Int16 = f("5+", tag=0, tagged="5+", default=0)
    num_partitions: Int32 = f("5+", default=-1)
    replication_factor: Int16 = f("5+", default=-1)
    configs: list[CreatableTopicConfigs] | None = f("5+", nullable="5+", default=[])


class CreateTopicsResponse(Response, key=19, versions="2-7", flexible="5+"):
    throttle_time_ms: Int32 = f("2+", default=0)
    topics: list[CreatableTopicResult] = f("0+")
