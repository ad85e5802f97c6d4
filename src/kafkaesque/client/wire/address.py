"""Broker addresses and how to parse them."""

from __future__ import annotations

from typing import Final, NamedTuple

PORT_DEFAULT: Final = 9092


class Address(NamedTuple):
    """Host and port of a broker."""

    host: str
    port: int

    def __str__(self) -> str:
        """As `parse_address` reads it: an IPv6 address is in brackets."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_address(text: str) -> Address:
    """`HOST:PORT`, `[IPV6]:PORT` or `HOST`, which gets port 9092; a `SCHEME://` before it is ignored.

    Raises ValueError.
    """
    place = text.strip().rpartition("://")[2]
    if place.startswith("["):
        host, _, rest = place[1:].partition("]")
        port = rest.removeprefix(":")
    elif place.count(":") > 1:
        host, port = place, ""
    else:
        host, _, port = place.partition(":")
    if not host or not (port.isdecimal() or port == ""):
        raise ValueError(f"'{text}' is not an address: write HOST:PORT, as in 127.0.0.1:9092.")
    return Address(host, int(port) if port else PORT_DEFAULT)


def parse_bootstrap(text: str) -> list[Address]:
    """The addresses of a `bootstrap.servers` list. Raises ValueError."""
    return [parse_address(part) for part in text.split(",")]
