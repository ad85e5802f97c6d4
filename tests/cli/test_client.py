from __future__ import annotations

import socket

import click
import pytest
from confluent_kafka import KafkaError, KafkaException

from kafkaesque.cli.client import Connection, kafka_error, split_address
from kafkaesque.cli.failures import CannotConnect, CommandFailure, TargetNotFound


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("localhost:9092", ("localhost", 9092)),
        ("localhost", ("localhost", 9092)),
        ("PLAINTEXT://h:1", ("h", 1)),
        ("[::1]:9093", ("::1", 9093)),
        ("[::1]", ("::1", 9092)),
        ("::1", ("::1", 9092)),
        (" h:1 ", ("h", 1)),
    ],
)
def test_addresses_as_people_write_them(text: str, expected: tuple[str, int]) -> None:
    assert split_address(text) == expected


@pytest.mark.parametrize("text", ["", ":9092", "h:port", "h:-1"])
def test_what_is_no_address_is_wrong_usage(text: str) -> None:
    with pytest.raises(click.UsageError, match="not an address"):
        split_address(text)


@pytest.mark.parametrize(
    ("code", "failure"),
    [
        (KafkaError.UNKNOWN_TOPIC_OR_PART, TargetNotFound),
        (KafkaError.GROUP_ID_NOT_FOUND, TargetNotFound),
        (KafkaError._TRANSPORT, CannotConnect),
        (KafkaError._TIMED_OUT, CannotConnect),
        (KafkaError._AUTHENTICATION, CannotConnect),
        (KafkaError.INVALID_CONFIG, CommandFailure),
    ],
)
def test_each_error_has_its_exit_code(code: int, failure: type[CommandFailure]) -> None:
    with pytest.raises(CommandFailure) as raised:
        Connection("h:1", {}, 1).fail(KafkaError(code), "do it")
    assert type(raised.value) is failure
    assert raised.value.message.startswith("cannot do it")


def test_a_closed_port_fails_at_once_with_the_reason() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    with pytest.raises(CannotConnect, match="connection refused") as raised:
        Connection(f"127.0.0.1:{port}", {}, 5).reach()
    assert "kafkaesque broker" in (raised.value.fix or "")


def test_one_open_address_of_several_is_enough() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        Connection(f"no-such-host.invalid:1,127.0.0.1:{port}", {}, 5).reach()


def test_an_unknown_property_names_itself() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        connection = Connection(f"127.0.0.1:{server.getsockname()[1]}", {"no.such": "1"}, 5)
        with pytest.raises(CommandFailure, match=r"no\.such"):
            connection.producer()


def test_a_bare_exception_of_the_library_still_has_an_error() -> None:
    assert kafka_error(KafkaException("odd")).code() == KafkaError._FAIL
