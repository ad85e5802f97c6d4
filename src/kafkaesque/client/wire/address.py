"""Broker addresses as clients write them."""

from __future__ import annotations

from typing import Final

from kafkaesque.model.address import Address, parse_address

PORT_DEFAULT: Final = 9092


def parse_broker_address(text: str) -> Address:
    """`HOST:PORT`, `[IPV6]:PORT` or `HOST`, which gets port 9092; a `SCHEME://` before it is ignored.

    Raises ValueError.
    """
    try:
        return parse_address(text.rpartition("://")[2], port_default=PORT_DEFAULT)
    except ValueError:
        raise ValueError(
            f"'{text}' is not an address: write HOST:PORT, as in 127.0.0.1:9092."
        ) from None


def parse_bootstrap(text: str) -> list[Address]:
    """The addresses of a `bootstrap.servers` list. Raises ValueError."""
    return [parse_broker_address(part) for part in text.split(",")]
