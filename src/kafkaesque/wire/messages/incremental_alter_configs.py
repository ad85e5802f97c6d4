"""IncrementalAlterConfigs, API key 44 (tables only)."""

from __future__ import annotations

from kafkaesque.wire.table import Bool, Int8, Int16, Int32, Request, Response, String, Struct, f


class AlterableConfig(Struct):
    name: String = f("0+")
    config_operation: Int8 = f("0+")
    value: String | None = f("0+", nullable="0+")


class AlterConfigsResource(Struct):
    resource_type: Int8 = f("0+")
    resource_name: String = f("0+")
    configs: list[AlterableConfig] = f("0+")


class IncrementalAlterConfigsRequest(Request, key=44, versions="0-1", flexible="1+"):
    resources: list[AlterConfigsResource] = f("0+")
    validate_only: Bool = f("0+")


class AlterConfigsResourceResponse(Struct):
    error_code: Int16 = f("0+")
    error_message: String | None = f("0+", nullable="0+")
    resource_type: Int8 = f("0+")
    resource_name: String = f("0+")


class IncrementalAlterConfigsResponse(Response, key=44, versions="0-1", flexible="1+"):
    throttle_time_ms: Int32 = f("0+", default=0)
    responses: list[AlterConfigsResourceResponse] = f("0+")
