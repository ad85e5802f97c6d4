"""DescribeCluster, API key 60: the brokers of the cluster (KIP-700).

v1  endpoint type: brokers or controllers (KIP-919)
v2  fenced brokers may be requested; we have none
"""

from __future__ import annotations

from typing import Final

from kafkaesque.broker.server.call import Call
from kafkaesque.broker.server.context import Context
from kafkaesque.broker.server.handler import handler
from kafkaesque.broker.server.metadata_view import (
    CLUSTER_OPERATIONS,
    NO_LEADER,
    OPERATIONS_NOT_ASKED,
)
from kafkaesque.model.errors import ErrorCode
from kafkaesque.wire.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)

BROKERS: Final = 1
CONTROLLERS: Final = 2


def describe_cluster(
    context: Context, request: DescribeClusterRequest, call: Call
) -> DescribeClusterResponse:
    if request.endpoint_type == CONTROLLERS:
        return _refused(
            ErrorCode.MISMATCHED_ENDPOINT_TYPE,
            "The request was sent to an endpoint of type BROKER, but we wanted an endpoint of type "
            "CONTROLLER",
        )
    if request.endpoint_type != BROKERS:
        return _refused(
            ErrorCode.UNSUPPORTED_ENDPOINT_TYPE,
            f"Unsupported endpoint type {request.endpoint_type}",
        )
    cluster = context.cluster
    return DescribeClusterResponse(
        error_code=ErrorCode.NONE,
        cluster_id=context.identity.cluster_id,
        controller_id=NO_LEADER if cluster.controller_id is None else cluster.controller_id,
        brokers=[
            DescribeClusterBroker(
                broker_id=broker.node_id, host=broker.host, port=broker.port, rack=broker.rack
            )
            for broker in cluster.live_brokers()
        ],
        cluster_authorized_operations=CLUSTER_OPERATIONS
        if request.include_cluster_authorized_operations
        else OPERATIONS_NOT_ASKED,
    )


def _refused(code: ErrorCode, message: str) -> DescribeClusterResponse:
    return DescribeClusterResponse(
        error_code=code, error_message=message, cluster_id="", brokers=[]
    )


HANDLER = handler(DescribeClusterRequest, versions=(0, 2))(describe_cluster)
