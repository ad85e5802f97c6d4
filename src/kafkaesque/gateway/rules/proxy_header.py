"""The PROXY protocol, versions 1 and 2 (haproxy.org, proxy-protocol.txt): the client's address.

A v1 header is one line of text of at most 107 bytes. A v2 header has 16 bytes, which include the length of
what follows. Bytes in, address out; nothing beyond the header is consumed.
"""

from __future__ import annotations

import ipaddress
import struct
from typing import NamedTuple

from kafkaesque.edge.protocol.codes import CloseCode, Violation

SIGNATURE = b"\r\n\r\n\x00\r\nQUIT\n"
_V1_LENGTH_MAX = 107
_V2_HEAD = struct.Struct(">12sBBH")
V2_LENGTH_MAX = 1024
"""Addresses take 36 bytes; the rest are extensions, which are skipped."""


class ProxyHeader(NamedTuple):
    """`address` is None if the proxy connects on its own behalf (LOCAL, UNKNOWN), as in a health check."""

    address: str | None
    size_bytes: int


def parse_proxy_header(data: bytes) -> ProxyHeader | None:
    """Returns None while the header is incomplete. Raises Violation if it is not a PROXY header."""
    if data[:1] == b"P":
        return _text(data)
    if SIGNATURE.startswith(data[: len(SIGNATURE)]):
        return _binary(data)
    raise _bad("the PROXY header is missing")


def _text(data: bytes) -> ProxyHeader | None:
    end = data.find(b"\r\n", 0, _V1_LENGTH_MAX)
    if end < 0:
        if len(data) >= _V1_LENGTH_MAX:
            raise _bad("the PROXY line does not end")
        return None
    words = data[:end].decode("ascii", errors="replace").split(" ")
    size_bytes = end + 2
    if words[0] == "PROXY" and words[1:2] == ["UNKNOWN"]:
        return ProxyHeader(None, size_bytes)
    if len(words) != 6 or words[0] != "PROXY" or words[1] not in ("TCP4", "TCP6"):
        raise _bad(f"an invalid PROXY line: {words!r}")
    return ProxyHeader(_address(words[2], words[4]), size_bytes)


def _binary(data: bytes) -> ProxyHeader | None:
    if len(data) < _V2_HEAD.size:
        return None
    _, version_command, family, length = _V2_HEAD.unpack_from(data)
    if version_command >> 4 != 2 or length > V2_LENGTH_MAX:
        raise _bad("the PROXY header has another version or is too long")
    size_bytes = _V2_HEAD.size + length
    if len(data) < size_bytes:
        return None
    body = data[_V2_HEAD.size : size_bytes]
    if version_command & 0x0F == 0:
        return ProxyHeader(None, size_bytes)
    width = {0x11: 4, 0x21: 16}.get(family)
    if width is None or len(body) < 2 * width + 4:
        return ProxyHeader(None, size_bytes)
    port = int.from_bytes(body[2 * width : 2 * width + 2], "big")
    return ProxyHeader(_address(str(ipaddress.ip_address(body[:width])), str(port)), size_bytes)


def _address(host: str, port: str) -> str:
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        raise _bad(f"{host!r} is not an address") from None
    if not (port.isascii() and port.isdigit()) or int(port) > 65_535:
        raise _bad(f"{port!r} is not a port")
    return f"[{address}]:{port}" if address.version == 6 else f"{address}:{port}"


def _bad(text: str) -> Violation:
    return Violation(CloseCode.BAD_FRAME, text)


def forwarded_address(header: str) -> str | None:
    """The client according to X-Forwarded-For: the last entry, which the nearest proxy wrote. The client
    may have invented those before it."""
    last = header.rpartition(",")[2].strip()
    try:
        return str(ipaddress.ip_address(last))
    except ValueError:
        return None
