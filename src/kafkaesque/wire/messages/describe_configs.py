"""DescribeConfigs, API key 32 (tables only)."""

from __future__ import annotations

from kafkaesque.wire.table import Bool, Int8, Int16, Int32, Request, Response, String, Struct, f


class DescribeConfigsResource(Struct):
    resource_type: Int8 = f("0+")
    resource_name: String = f("0+")
    configuration_keys: list[String] | None = f("0+", nullable="0+")


class DescribeConfigsRequest(Request, key=32, versions="1-4", flexible="4+"):
    resources: list[DescribeConfigsResource] = f("0+")
    include_synonyms: Bool = f("1+", default=False)
    include_documentation: Bool = f("3+", default=False)


class DescribeConfigsSynonym(Struct):
    name: String = f("1+")
    value: String | None = f("1+", nullable="0+")
    source: Int8 = f("1+")


class DescribeConfigsResourceResult(Struct):
    name: String = f("0+")
    value: String | None = f("0+", nullable="0+")
    read_only: Bool = f("0+")
    config_source: Int8 = f("1+", default=-1)
    is_sensitive: Bool = f("0+")
    synonyms: list[DescribeConfigsSynonym] = f("1+")
    config_type: Int8 = f("3+", default=0)
    documentation: String | None = f("3+", nullable="0+", default="")


class DescribeConfigsResult(Struct):
    error_code: Int16 = f("0+")
    error_message: String | None = f("0+", nullable="0+")
    resource_type: Int8 = f("0+")
    resource_name: String = f("0+")
    configs: list[DescribeConfigsResourceResult] = f("0+")


class DescribeConfigsResponse(Response, key=32, versions="1-4", flexible="4+"):
    throttle_time_ms: Int32 = f("0+", default=0)
    results: list[DescribeConfigsResult] = f("0+")
