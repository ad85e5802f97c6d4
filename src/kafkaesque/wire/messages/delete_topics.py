"""DeleteTopics, API key 20 (tables only)."""

from __future__ import annotations

from kafkaesque.wire.table import NO_UUID, Int16, Int32, Request, Response, String, Struct, Uuid, f


class DeleteTopicState(Struct):
    name: String | None = f("6+", nullable="6+", default=None)
    topic_id: Uuid = f("6+")


class DeleteTopicsRequest(Request, key=20, versions="1-6", flexible="4+"):
    topics: list[DeleteTopicState] = f("6+", default=[])
    topic_names: list[String] = f("0-5", default=[])
    timeout_ms: Int32 = f("0+")


class DeletableTopicResult(Struct):
    name: String | None = f("0+", nullable="6+")
    topic_id: Uuid = f("6+", default=NO_UUID)
    error_code: Int16 = f("0+")
    error_message: String | None = f("5+", nullable="5+", default=None)


class DeleteTopicsResponse(Response, key=20, versions="1-6", flexible="4+"):
    throttle_time_ms: Int32 = f("1+", default=0)
    responses: list[DeletableTopicResult] = f("0+")
