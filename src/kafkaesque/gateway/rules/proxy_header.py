"""The PROXY protocol, versions 1 and 2 (haproxy.org, proxy-protocol.txt): whom a proxy speaks for.

A v1 header is one line of text, at most 107 bytes; a v2 header has 16 bytes and then as many as they
say. Bytes in, address out; nothing beyond the header is touched.
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
"""Addresses take 36 bytes; the rest are extras that we skip."""


class Proxied(NamedTuple):
    """`address` None: the proxy speaks for itself (LOCAL, UNKNOWN), as in a health check."""

    address: str | None
    size_bytes: int


def parse_proxy_header(data: bytes) -> Proxied | None:
    """None while the header is not whole; Violation if it is none."""
    if data[:1] == b"P":
        return _text(data)
    if SIGNATURE.startswith(data[: len(SIGNATURE)]):
        return _binary(data)
    raise _bad("no PROXY header where one must be")


def _text(data: bytes) -> Proxied | None:
    end = data.find(b"\r\n", 0, _V1_LENGTH_MAX)
    if end < 0:
        if len(data) >= _V1_LENGTH_MAX:
            raise _bad("a PROXY line that does not end")
        return None
    words = data[:end].decode("ascii", errors="replace").split(" ")
    size_bytes = end + 2
    if words[0] == "PROXY" and words[1:2] == ["UNKNOWN"]:
        return Proxied(None, size_bytes)
    if len(words) != 6 or words[0] != "PROXY" or words[1] not in ("TCP4", "TCP6"):
        raise _bad(f"a PROXY line that says {words!r}")
    return Proxied(_address(words[2], words[4]), size_bytes)


def _binary(data: bytes) -> Proxied | None:
    if len(data) < _V2_HEAD.size:
        return None
    _, version_command, family, length = _V2_HEAD.unpack_from(data)
    if version_command >> 4 != 2 or length > V2_LENGTH_MAX:
        raise _bad("a PROXY header of another version, or too long")
    size_bytes = _V2_HEAD.size + length
    if len(data) < size_bytes:
        return None
    body = data[_V2_HEAD.size : size_bytes]
    if version_command & 0x0F == 0:
        return Proxied(None, size_bytes)
    width = {0x11: 4, 0x21: 16}.get(family)
    if width is None or len(body) < 2 * width + 4:
        return Proxied(None, size_bytes)
    port = int.from_bytes(body[2 * width : 2 * width + 2], "big")
    return Proxied(_address(str(ipaddress.ip_address(body[:width])), str(port)), size_bytes)


def _address(host: str, port: str) -> str:
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        raise _bad(f"{host!r} is no address") from None
    if not (port.isascii() and port.isdigit()) or int(port) > 65_535:
        raise _bad(f"{port!r} is no port")
    return f"[{address}]:{port}" if address.version == 6 else f"{address}:{port}"


def _bad(text: str) -> Violation:
    return Violation(CloseCode.BAD_FRAME, text)


def forwarded_address(header: str) -> str | None:
    """The client according to X-Forwarded-For: the last entry, which the nearest proxy wrote. Those
    before it may be the client's own invention."""
    last = header.rpartition(",")[2].strip()
    try:
        return str(ipaddress.ip_address(last))
    except ValueError:
        return None
