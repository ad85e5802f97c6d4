from __future__ import annotations

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkaesque.edge.protocol.codes import Violation
from kafkaesque.edge.protocol.framing import TcpFraming
from kafkaesque.edge.protocol.websocket import OriginRule
from kafkaesque.gateway.rules.handshake import ConnectionHandshake, HandshakeRules
from kafkaesque.gateway.rules.proxy_header import (
    SIGNATURE,
    ProxyHeader,
    forwarded_address,
    parse_proxy_header,
)

V4 = bytes([192, 0, 2, 7, 10, 0, 0, 1]) + struct.pack(">HH", 5555, 7000)
V6 = bytes(15) + b"\x01" + bytes(16) + struct.pack(">HH", 5555, 7000)


def v2(command: int, family: int, body: bytes) -> bytes:
    return SIGNATURE + struct.pack(">BBH", 0x20 | command, family, len(body)) + body


@pytest.mark.parametrize(
    ("header", "address"),
    [
        (b"PROXY TCP4 192.0.2.7 10.0.0.1 5555 7000\r\n", "192.0.2.7:5555"),
        (b"PROXY TCP6 2001:db8::1 ::1 5555 7000\r\n", "[2001:db8::1]:5555"),
        (b"PROXY UNKNOWN\r\n", None),
        (b"PROXY UNKNOWN ffff::1 ::1 1 2\r\n", None),
        (v2(1, 0x11, V4), "192.0.2.7:5555"),
        (v2(1, 0x11, V4 + b"\x03\x00\x04abcd"), "192.0.2.7:5555"),
        (v2(1, 0x21, V6), "[::1]:5555"),
        (v2(0, 0x00, b""), None),
        (v2(1, 0x31, b"x" * 216), None),
    ],
)
def test_a_header_contains_the_address_of_the_client(header: bytes, address: str | None) -> None:
    assert parse_proxy_header(header + b"rest") == ProxyHeader(address, len(header))
    for cut in range(1, len(header)):
        assert parse_proxy_header(header[:cut]) is None


@pytest.mark.parametrize(
    "header",
    [
        b"GET / HTTP/1.1\r\n",
        b"\x01\x00\x00",
        b"PROXY TCP4 192.0.2.7 10.0.0.1 5555\r\n",
        b"PROXY TCP4 example.com 10.0.0.1 5555 7000\r\n",
        b"PROXY TCP4 192.0.2.7 10.0.0.1 99999 7000\r\n",
        b"P" * 200,
        SIGNATURE + struct.pack(">BBH", 0x11, 0x11, 12) + V4,
        SIGNATURE + struct.pack(">BBH", 0x21, 0x11, 5000),
    ],
)
def test_an_invalid_header_is_a_violation(header: bytes) -> None:
    with pytest.raises(Violation):
        parse_proxy_header(header)


@given(st.binary(min_size=1, max_size=130))
@settings(deadline=None, max_examples=80)
def test_any_bytes_are_a_header_or_a_violation(data: bytes) -> None:
    try:
        parse_proxy_header(data)
    except Violation:
        return


def test_last_forwarded_address_counts() -> None:
    assert forwarded_address("10.9.9.9, 192.0.2.7") == "192.0.2.7"
    assert forwarded_address("2001:db8::1") == "2001:db8::1"
    assert forwarded_address("unknown") is None


FRAME = b"\x01\x00\x00\x00\x02\x00\x01{}"


def handshake(host: str, *, proxy: bool) -> ConnectionHandshake:
    return ConnectionHandshake(
        HandshakeRules.of(OriginRule(), proxy, ("127.0.0.0/8",)), host, f"{host}:1"
    )


def test_a_header_is_accepted_from_trusted_proxies_only() -> None:
    header = b"PROXY TCP4 192.0.2.7 10.0.0.1 5555 7000\r\n"
    result = handshake("127.0.0.1", proxy=True).feed(header + FRAME)
    assert result is not None
    assert (result.address, result.rest) == ("192.0.2.7:5555", FRAME)
    assert isinstance(result.wire, TcpFraming)
    with pytest.raises(Violation):
        handshake("127.0.0.1", proxy=True).feed(FRAME)
    with pytest.raises(Violation):
        handshake("198.51.100.1", proxy=True).feed(header + FRAME)
    direct = handshake("198.51.100.1", proxy=True).feed(FRAME)
    assert direct is not None
    assert direct.address == "198.51.100.1:1"


def test_forwarded_for_is_trusted_from_trusted_proxies_only() -> None:
    request = (
        b"GET / HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n"
        b"Sec-WebSocket-Protocol: kafkaesque.v1.json\r\nX-Forwarded-For: 1.1.1.1, 192.0.2.7\r\n\r\n"
    )
    for host, address in (("127.0.0.1", "192.0.2.7"), ("198.51.100.1", "198.51.100.1:1")):
        fed = handshake(host, proxy=False)
        assert fed.feed(request[:1]) is None
        result = fed.feed(request[1:])
        assert result is not None
        assert result.address == address
