from __future__ import annotations

import pytest

from kafkaesque.model.address import Address, is_loopback, parse_address


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:0", ("127.0.0.1", 0)),
        ("[::1]:9092", ("::1", 9092)),
        ("::1:9092", ("::1", 9092)),
        ("a:65535", ("a", 65535)),
        (" a:1 ", ("a", 1)),
    ],
)
def test_address_is_host_and_port(text: str, address: tuple[str, int]) -> None:
    assert parse_address(text) == address


@pytest.mark.parametrize(
    "text",
    [
        "",
        "9092",
        ":9092",
        "host:",
        "host:x",
        "host:-1",
        "host:65536",
        "[::1",
        "[::1]9092",
        "[]:1",
        "h:\u0663",
    ],
)
def test_other_text_is_an_error(text: str) -> None:
    with pytest.raises(ValueError, match="is not HOST:PORT"):
        parse_address(text)


def test_a_part_that_has_a_default_may_be_missing() -> None:
    assert parse_address(":9092", host_default="127.0.0.1") == ("127.0.0.1", 9092)
    assert parse_address("h", port_default=9092) == ("h", 9092)
    assert parse_address("[::1]", port_default=9092) == ("::1", 9092)
    assert parse_address("::1", port_default=9092) == ("::1", 9092)


@pytest.mark.parametrize("text", ["h:1", "127.0.0.1:9092", "[::1]:9092"])
def test_an_address_is_printed_as_it_is_parsed(text: str) -> None:
    assert str(parse_address(text)) == text


def test_an_ipv6_address_is_printed_in_brackets() -> None:
    assert str(Address("fe80::1", 9092)) == "[fe80::1]:9092"


def test_loopback_is_what_only_this_machine_reaches() -> None:
    assert all(is_loopback(host) for host in ("127.0.0.1", "127.9.9.9", "localhost", "::1"))
    assert not any(is_loopback(host) for host in ("0.0.0.0", "::", "10.0.0.1", "broker-1", ""))
