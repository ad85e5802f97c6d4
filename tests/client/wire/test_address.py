from __future__ import annotations

import pytest

from kafkaesque.client.wire.address import Address, parse_address


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
    assert parse_address(text) == expected


@pytest.mark.parametrize("text", ["", ":9092", "h:port", "h:-1"])
def test_other_text_is_an_error(text: str) -> None:
    with pytest.raises(ValueError, match="not an address"):
        parse_address(text)


@pytest.mark.parametrize("text", ["h:1", "127.0.0.1:9092", "[::1]:9092"])
def test_an_address_is_printed_as_it_is_parsed(text: str) -> None:
    assert str(parse_address(text)) == text


def test_an_ipv6_address_is_printed_in_brackets() -> None:
    assert str(Address("fe80::1", 9092)) == "[fe80::1]:9092"
