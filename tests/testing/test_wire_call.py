"""One request to one broker."""

from __future__ import annotations

import socket
import threading

import pytest

from kafkaesque.testing import Broker
from kafkaesque.testing.wire_call import wire_call
from kafkaesque.wire.messages.metadata import MetadataRequest, MetadataResponse


def test_broker_answers() -> None:
    with Broker() as broker:
        request = MetadataRequest(topics=[])
        answer = wire_call(broker.bootstrap_servers, request, 12, MetadataResponse, 10)
    assert [broker.node_id for broker in answer.brokers] == [0]


def test_closed_connection_is_an_os_error() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        closer = threading.Thread(target=lambda: server.accept()[0].close())
        closer.start()
        address = f"127.0.0.1:{server.getsockname()[1]}"
        with pytest.raises(OSError, match=r"closed|reset"):
            wire_call(address, MetadataRequest(topics=[]), 12, MetadataResponse, 10)
        closer.join()
