"""ApiVersions, API key 18 (tables only)."""

from __future__ import annotations

from kafkaesque.wire.table import Bool, Int16, Int32, Int64, Request, Response, String, Struct, f


class ApiVersionsRequest(Request, key=18, versions="0-4", flexible="3+"):
    client_software_name: String = f("3+", default="")
    client_software_version: String = f("3+", default="")


class ApiVersion(Struct):
    api_key: Int16 = f("0+")
    min_version: Int16 = f("0+")
    max_version: Int16 = f("0+")


class SupportedFeatureKey(Struct):
    name: String = f("3+")
    min_version: Int16 = f("3+")
    max_version: Int16 = f("3+")


class FinalizedFeatureKey(Struct):
    name: String = f("3+")
    max_version_level: Int16 = f("3+")
    min_version_level: Int16 = f("3+")


class ApiVersionsResponse(Response, key=18, versions="0-4", flexible="3+"):
    error_code: Int16 = f("0+")
    api_keys: list[ApiVersion] = f("0+")
    throttle_time_ms: Int32 = f("1+", default=0)
    supported_features: list[SupportedFeatureKey] = f("3+", tag=0, tagged="3+", default=[])
    finalized_features_epoch: Int64 = f("3+", tag=1, tagged="3+", default=-1)
    finalized_features: list[FinalizedFeatureKey] = f("3+", tag=2, tagged="3+", default=[])
    zk_migration_ready: Bool = f("3+", tag=3, tagged="3+", default=False)
