"""FindCoordinator, API key 10 (tables only)."""

from __future__ import annotations

from kafkaesque.wire.table import Int8, Int16, Int32, Request, Response, String, Struct, f


class FindCoordinatorRequest(Request, key=10, versions="0-6", flexible="3+"):
    key: String = f("0-3", default="")
    key_type: Int8 = f("1+", default=0)
    coordinator_keys: list[String] = f("4+", default=[])


class Coordinator(Struct):
    key: String = f("4+")
    node_id: Int32 = f("4+")
    host: String = f("4+")
    port: Int32 = f("4+")
    error_code: Int16 = f("4+")
    error_message: String | None = f("4+", nullable="4+")


class FindCoordinatorResponse(Response, key=10, versions="0-6", flexible="3+"):
    throttle_time_ms: Int32 = f("1+", default=0)
    error_code: Int16 = f("0-3", default=0)
    error_message: String | None = f("1-3", nullable="1-3", default="")
    node_id: Int32 = f("0-3", default=0)
    host: String = f("0-3", default="")
    port: Int32 = f("0-3", default=0)
    coordinators: list[Coordinator] = f("4+", default=[])
