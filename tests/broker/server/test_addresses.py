"""The address a broker listens at, and the one it advertises to clients."""

from __future__ import annotations

import pytest

from kafkaesque.broker.server.addresses import (
    advertised_address,
    listen_address,
    parse_listener,
)
from kafkaesque.model.address import Address
from kafkaesque.model.errors import InvalidConfig
from kafkaesque.model.settings import BrokerConfig


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:9092", Address("127.0.0.1", 9092)),
        ("PLAINTEXT://localhost:0", Address("localhost", 0)),
        ("[::1]:9092", Address("::1", 9092)),
        ("PLAINTEXT://:9092", Address("127.0.0.1", 9092)),
    ],
)
def test_address_is_parsed(text: str, address: Address) -> None:
    assert parse_listener(text, "listeners") == address


@pytest.mark.parametrize("text", ["", "9092", "host:", "host:x", "host:70000"])
def test_invalid_address_is_rejected_with_the_name_of_its_setting(text: str) -> None:
    with pytest.raises(InvalidConfig, match="listeners"):
        parse_listener(text, "listeners")


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "localhost", "[::1]"])
def test_loopback_needs_no_word(host: str) -> None:
    listen_address(BrokerConfig(listeners=f"{host}:9092"))


@pytest.mark.parametrize("host", ["0.0.0.0", "[::]", "192.0.2.1", "kafka.example"])
def test_reachable_plaintext_listener_needs_insecure(host: str) -> None:
    with pytest.raises(InvalidConfig, match="--insecure"):
        listen_address(BrokerConfig(listeners=f"{host}:9092"))
    listen_address(BrokerConfig(listeners=f"{host}:9092", insecure=True))


@pytest.mark.parametrize(
    ("setting", "bound", "advertised"),
    [
        ("", Address("127.0.0.1", 5), Address("127.0.0.1", 5)),
        ("", Address("0.0.0.0", 5), Address("127.0.0.1", 5)),
        ("", Address("localhost", 5), Address("127.0.0.1", 5)),
        ("", Address("::", 5), Address("::1", 5)),
        ("kafka.example:9092", Address("0.0.0.0", 5), Address("kafka.example", 9092)),
        ("kafka.example:0", Address("0.0.0.0", 5), Address("kafka.example", 5)),
    ],
)
def test_advertised_address_can_be_dialed(
    setting: str, bound: Address, advertised: Address
) -> None:
    assert advertised_address(BrokerConfig(advertised_listeners=setting), bound) == advertised
