"""One request over a connection of its own, and the response of that very broker.

A client library chooses the broker and retries. A test that looks at a cluster needs what one broker
answers now.
"""

from __future__ import annotations

from typing import TypeVar

from kafkaesque.client.wire.address import parse_broker_address
from kafkaesque.client.wire.blocking import BlockingConnection
from kafkaesque.wire.table import Request, Response

R = TypeVar("R", bound=Response)


def wire_call(address: str, request: Request, version: int, answer: type[R], timeout_s: float) -> R:
    """Raises OSError if the broker is not there, closes the connection or takes too long."""
    with BlockingConnection(
        parse_broker_address(address),
        timeout_s=timeout_s,
        client_id="kafkaesque-testing",
        negotiates=False,
    ) as connection:
        return connection.call(request, answer, version=version)
