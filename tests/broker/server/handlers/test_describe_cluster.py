from __future__ import annotations

from typing import Any

import pytest
from tests.broker.server.local_broker import LocalBroker, every_version

from kafkaesque.model.errors import ErrorCode
from kafkaesque.wire.messages.describe_cluster import DescribeClusterRequest


def ask(broker: LocalBroker, version: int = 2, operations: bool = False, **more: Any) -> Any:
    request = DescribeClusterRequest(include_cluster_authorized_operations=operations, **more)
    return broker.ask(request, version)


@pytest.mark.parametrize("version", every_version(DescribeClusterRequest))
def test_this_broker_is_the_cluster_and_its_controller(broker: LocalBroker, version: int) -> None:
    answer = ask(broker, version)
    identity = broker.context.identity
    assert (answer.error_code, answer.error_message) == (ErrorCode.NONE, None)
    assert (answer.cluster_id, answer.controller_id) == (identity.cluster_id, 1)
    (node,) = answer.brokers
    assert (node.broker_id, node.host, node.port, node.rack) == (
        1,
        "127.0.0.1",
        identity.port,
        None,
    )
    assert not node.is_fenced


def test_authorized_operations_are_included_on_request(broker: LocalBroker) -> None:
    assert ask(broker).cluster_authorized_operations == -(2**31)
    assert ask(broker, operations=True).cluster_authorized_operations == 8096


@pytest.mark.parametrize(
    ("endpoint_type", "code", "message"),
    [
        (
            2,
            ErrorCode.MISMATCHED_ENDPOINT_TYPE,
            "The request was sent to an endpoint of type BROKER, but we wanted an endpoint of type "
            "CONTROLLER",
        ),
        (9, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE, "Unsupported endpoint type 9"),
    ],
)
def test_endpoints_other_than_brokers_are_refused(
    broker: LocalBroker, endpoint_type: int, code: int, message: str
) -> None:
    answer = ask(broker, endpoint_type=endpoint_type)
    assert (answer.error_code, answer.error_message) == (code, message)
    assert (answer.cluster_id, answer.controller_id, answer.brokers) == ("", -1, [])
