"""Host and port of a server: how an address is parsed and printed."""

from __future__ import annotations

from ipaddress import ip_address
from typing import NamedTuple

_PORT_MAX = 65_535


class Address(NamedTuple):
    host: str
    port: int

    def __str__(self) -> str:
        """As `parse_address` reads it: an IPv6 address is in brackets."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_address(
    text: str, *, host_default: str | None = None, port_default: int | None = None
) -> Address:
    """`HOST:PORT` or `[IPV6]:PORT`. A part that has a default may be missing. Raises ValueError."""
    place = text.strip()
    if place.startswith("["):
        host, bracket, rest = place[1:].partition("]")
        is_malformed = not bracket or not (rest == "" or rest.startswith(":"))
        port = rest.removeprefix(":")
    elif place.count(":") > 1 and port_default is not None:
        host, port, is_malformed = place, "", False  # an IPv6 address without brackets
    else:
        head, colon, port = place.rpartition(":")
        host, port = (head, port) if colon else (port, "")
        is_malformed = False
    host = host or host_default or ""
    if port == "" and port_default is not None:
        port = str(port_default)
    if is_malformed or not host or not (port.isascii() and port.isdecimal()):
        raise ValueError(f"'{text}' is not HOST:PORT.")
    if int(port) > _PORT_MAX:
        raise ValueError(f"'{text}' is not HOST:PORT: ports end at {_PORT_MAX}.")
    return Address(host, int(port))


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach the host. A name other than localhost may be any machine."""
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
