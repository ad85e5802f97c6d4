from __future__ import annotations

import socket

import pytest
from confluent_kafka import KafkaError, KafkaException

from kafkaesque.admin.connection import ClusterConnection, kafka_error
from kafkaesque.admin.errors import (
    AdminError,
    BrokerUnavailable,
    ClusterUnreachable,
    ResourceNotFound,
)


@pytest.mark.parametrize(
    ("code", "failure"),
    [
        (KafkaError.UNKNOWN_TOPIC_OR_PART, ResourceNotFound),
        (KafkaError.GROUP_ID_NOT_FOUND, ResourceNotFound),
        (KafkaError._TRANSPORT, BrokerUnavailable),
        (KafkaError._TIMED_OUT, BrokerUnavailable),
        (KafkaError._AUTHENTICATION, BrokerUnavailable),
        (KafkaError.INVALID_CONFIG, AdminError),
    ],
)
def test_each_error_of_librdkafka_has_its_exception(code: int, failure: type[AdminError]) -> None:
    error = ClusterConnection("h:1", {}, 1).admin_error(KafkaError(code), "do it")
    assert type(error) is failure
    assert str(error).startswith("cannot do it")
    assert error.fix


def test_a_closed_port_fails_at_once_with_the_reason() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    with pytest.raises(ClusterUnreachable, match="connection refused"):
        ClusterConnection(f"127.0.0.1:{port}", {}, 5).reach()


def test_one_open_address_of_several_is_enough() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        ClusterConnection(f"no-such-host.invalid:1,127.0.0.1:{port}", {}, 5).reach()


def test_error_of_an_unknown_property_names_it() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        connection = ClusterConnection(f"127.0.0.1:{server.getsockname()[1]}", {"no.such": "1"}, 5)
        with pytest.raises(AdminError, match=r"no\.such"):
            connection.producer()


def test_a_bare_exception_of_the_library_still_has_an_error() -> None:
    assert kafka_error(KafkaException("odd")).code() == KafkaError._FAIL


def test_bootstrap_must_be_a_list_of_addresses() -> None:
    with pytest.raises(ValueError, match="not an address"):
        ClusterConnection("127.0.0.1:9092,", {}, 5)
