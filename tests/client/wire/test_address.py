from __future__ import annotations

import pytest

from kafkaesque.client.wire.address import parse_broker_address


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
    assert parse_broker_address(text) == expected


@pytest.mark.parametrize("text", ["", ":9092", "h:port", "h:-1"])
def test_other_text_is_an_error(text: str) -> None:
    with pytest.raises(ValueError, match="not an address"):
        parse_broker_address(text)
