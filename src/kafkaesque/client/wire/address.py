"""Broker addresses and how to parse them."""

from __future__ import annotations

from typing import Final, NamedTuple

PORT_DEFAULT: Final = 9092


class Address(NamedTuple):
    """Host and port of a broker."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


def parse_address(text: str) -> Address:
    """`HOST:PORT`, `[IPV6]:PORT` or `HOST`, which gets port 9092. Raises ValueError."""
    host, colon, port = text.strip().rpartition(":")
    return Address(host.strip("[]"), int(port)) if colon else Address(port, PORT_DEFAULT)


def parse_bootstrap(text: str) -> list[Address]:
    """The addresses of a `bootstrap.servers` list."""
    return [parse_address(part) for part in text.split(",")]
