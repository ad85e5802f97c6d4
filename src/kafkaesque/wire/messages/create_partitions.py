"""CreatePartitions, API key 37 (tables only)."""

from __future__ import annotations

from kafkaesque.wire.table import Bool, Int16, Int32, Request, Response, String, Struct, f


class CreatePartitionsAssignment(Struct):
    broker_ids: list[Int32] = f("0+")


class CreatePartitionsTopic(Struct):
    name: String = f("0+")
    count: Int32 = f("0+")
    assignments: list[CreatePartitionsAssignment] | None = f("0+", nullable="0+")


class CreatePartitionsRequest(Request, key=37, versions="0-3", flexible="2+"):
    topics: list[CreatePartitionsTopic] = f("0+")
    timeout_ms: Int32 = f("0+")
    validate_only: Bool = f("0+")


class CreatePartitionsTopicResult(Struct):
    name: String = f("0+")
    error_code: Int16 = f("0+")
    error_message: String | None = f("0+", nullable="0+", default=None)


class CreatePartitionsResponse(Response, key=37, versions="0-3", flexible="2+"):
    throttle_time_ms: Int32 = f("0+", default=0)
    results: list[CreatePartitionsTopicResult] = f("0+")
