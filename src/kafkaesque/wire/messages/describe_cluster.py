"""DescribeCluster, API key 60 (tables only)."""

from __future__ import annotations

from kafkaesque.wire.table import Bool, Int8, Int16, Int32, Request, Response, String, Struct, f


class DescribeClusterRequest(Request, key=60, versions="0-2", flexible="0+"):
    include_cluster_authorized_operations: Bool = f("0+")
    endpoint_type: Int8 = f("1+", default=1)
    include_fenced_brokers: Bool = f("2+", default=False)


class DescribeClusterBroker(Struct):
    broker_id: Int32 = f("0+")
    host: String = f("0+")
    port: Int32 = f("0+")
    rack: String | None = f("0+", nullable="0+", default=None)
    is_fenced: Bool = f("2+", default=False)


class DescribeClusterResponse(Response, key=60, versions="0-2", flexible="0+"):
    throttle_time_ms: Int32 = f("0+", default=0)
    error_code: Int16 = f("0+")
    error_message: String | None = f("0+", nullable="0+", default=None)
    endpoint_type: Int8 = f("1+", default=1)
    cluster_id: String = f("0+")
    controller_id: Int32 = f("0+", default=-1)
    brokers: list[DescribeClusterBroker] = f("0+")
    cluster_authorized_operations: Int32 = f("0+", default=-2147483648)
