from __future__ import annotations

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from websockets.client import ClientProtocol
from websockets.frames import Frame as LibraryFrame
from websockets.frames import Opcode as FrameOpcode
from websockets.uri import parse_uri

from kafkaesque.edge.protocol.codec import Encoding
from kafkaesque.edge.protocol.codes import CloseCode, Violation
from kafkaesque.edge.protocol.framing import ControlFrame
from kafkaesque.edge.protocol.messages import Hello, Message, Ping
from kafkaesque.edge.protocol.websocket import Handshake, OriginRule, WebSocketFraming


def request(*headers: str, path: str = "/") -> bytes:
    lines = [
        f"GET {path} HTTP/1.1", "Host: gw.example:7000", "Upgrade: websocket",
        "Connection: Upgrade", "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
        "Sec-WebSocket-Version: 13", *headers,
    ]  # fmt: skip
    return "\r\n".join([*lines, "", ""]).encode()


JSON_OFFER = "Sec-WebSocket-Protocol: kafkaesque.v1.json"


def masked(opcode: int, data: bytes, *, fin: bool = True) -> bytes:
    return LibraryFrame(FrameOpcode(opcode), data, fin).serialize(mask=True)


def test_handshake_is_accepted_and_names_the_encoding() -> None:
    done = Handshake(OriginRule()).feed(request(JSON_OFFER) + b"rest")
    assert done is not None
    assert done.encoding is Encoding.JSON
    assert done.answer.startswith(b"HTTP/1.1 101")
    assert b"s3pPLMBiTxaQ9kYGzzhZRbK+xOo=" in done.answer
    assert done.rest == b"rest"


def test_handshake_of_a_library_client_works() -> None:
    client = ClientProtocol(parse_uri("ws://gw.example:7000/"),
                            subprotocols=["kafkaesque.v1.msgpack"])  # type: ignore[list-item]  # fmt: skip
    client.send_request(client.connect())
    done = Handshake(OriginRule()).feed(b"".join(client.data_to_send()))
    assert done is not None
    assert done.encoding is Encoding.MSGPACK
    client.receive_data(done.answer)
    assert client.handshake_exc is None


@pytest.mark.parametrize(
    ("rule", "origin", "accepted"),
    [
        (OriginRule(), None, True),
        (OriginRule(), "http://gw.example:7000", False),
        (OriginRule(hosts=("GW.example",)), "http://gw.example:7000", True),
        (OriginRule(hosts=("gw.example",)), "http://evil.example", False),
        (OriginRule(), "http://evil.example", False),
        (OriginRule(("https://app.example",)), "https://app.example", True),
        (OriginRule(("https://app.example",)), "https://app.example.evil.example", False),
        (OriginRule(("*",)), "http://evil.example", True),
    ],
)
def test_pages_of_other_hosts_are_refused(
    rule: OriginRule, origin: str | None, accepted: bool
) -> None:
    headers = [JSON_OFFER] if origin is None else [JSON_OFFER, f"Origin: {origin}"]
    done = Handshake(rule).feed(request(*headers))
    assert done is not None
    assert (done.encoding is not None) is accepted
    assert done.answer.startswith(b"HTTP/1.1 101" if accepted else b"HTTP/1.1 403")


@pytest.mark.parametrize(
    "host", ["localhost:7000", "127.0.0.1:7000", "[::1]:7000", "[::1]", "10.0.0.5"]
)
def test_pages_of_loopback_and_of_addresses_are_of_the_same_host(host: str) -> None:
    assert OriginRule().allows(f"http://{host}", host)
    assert not OriginRule().allows("http://evil.example", host)


def test_request_without_our_subprotocol_is_rejected_by_http() -> None:
    done = Handshake(OriginRule()).feed(request())
    assert done is not None
    assert done.encoding is None
    assert done.answer.startswith(b"HTTP/1.1 400")


def test_endless_request_is_rejected() -> None:
    handshake = Handshake(OriginRule())
    with pytest.raises(Violation) as refused:
        handshake.feed(b"GET / HTTP/1.1\r\n" + b"X: y\r\n" * 4000)
    assert refused.value.code is CloseCode.TOO_LARGE


def heard(wire: WebSocketFraming, data: bytes) -> list[Message | ControlFrame]:
    return list(wire.feed(data))


def test_messages_and_control_frames_are_parsed_however_the_bytes_are_split() -> None:
    stream = (
        masked(1, b"[1,{}]") + masked(9, b"hey") + masked(1, b'[4,{"t"', fin=False)
        + masked(0, b":7}]") + masked(8, struct.pack(">H", 1000))
    )  # fmt: skip
    wire = WebSocketFraming(Encoding.JSON)
    found: list[Message | ControlFrame] = []
    for byte in stream:
        found += heard(wire, bytes([byte]))
    assert found == [
        Hello(),
        ControlFrame(b"\x8a\x03hey", closed=False),
        Ping(7),
        ControlFrame(b"\x88\x02\x03\xe8", closed=True),
    ]


def test_framing_continues_from_the_rest_of_another() -> None:
    stream = masked(1, b"[1,{}]") + masked(1, b'[4,{"t":7}]')
    first = WebSocketFraming(Encoding.JSON)
    assert heard(first, stream[:-3]) == [Hello()]
    rest = first.rest()
    assert rest is not None
    assert heard(WebSocketFraming(Encoding.JSON, rest), stream[-3:]) == [Ping(7)]


def test_connection_between_two_fragments_cannot_be_handed_over() -> None:
    wire = WebSocketFraming(Encoding.JSON)
    heard(wire, masked(1, b"[1,", fin=False))
    assert wire.rest() is None


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"\x81\x02{}", CloseCode.BAD_FRAME),
        (masked(2, b"[1,{}]"), CloseCode.BAD_FRAME),
        (masked(0, b"x"), CloseCode.BAD_FRAME),
        (b"\xc1\x80", CloseCode.BAD_FRAME),
        (b"\x83\x80", CloseCode.BAD_FRAME),
        (b"\x89\xfe\x00\x80", CloseCode.BAD_FRAME),
        (b"\x81\xff\x7f\xff\xff\xff\xff\xff\xff\xff", CloseCode.TOO_LARGE),
        (masked(1, b"x" * 9000), CloseCode.TOO_LARGE),
        (masked(1, b"\xff\xfe"), CloseCode.BAD_FRAME),
    ],
    ids=[
        "unmasked",
        "binary in JSON",
        "continuation of nothing",
        "reserved bit",
        "unknown opcode",
        "long ping",
        "endless",
        "too long",
        "not UTF-8",
    ],
)
def test_invalid_frames_are_violations(data: bytes, code: CloseCode) -> None:
    with pytest.raises(Violation) as refused:
        heard(WebSocketFraming(Encoding.JSON), data)
    assert refused.value.code is code


@pytest.mark.parametrize("size", [0, 125, 126, 65_535, 65_536])
def test_frames_of_every_length_equal_the_librarys(size: int) -> None:
    wire = WebSocketFraming(Encoding.JSON)
    frame = wire.encode(Hello(client="x" * size))
    start = frame.index(b"[")
    assert frame == LibraryFrame(FrameOpcode.TEXT, frame[start:]).serialize(mask=False)


@given(st.binary(max_size=100))
@settings(deadline=None, max_examples=100)
def test_any_bytes_are_messages_or_a_violation(data: bytes) -> None:
    try:
        heard(WebSocketFraming(Encoding.JSON), data)
    except Violation:
        return
