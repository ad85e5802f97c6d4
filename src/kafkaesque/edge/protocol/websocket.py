"""The gateway's side of a WebSocket, without I/O: the opening handshake, then frames (RFC 6455).

The `websockets` library checks the handshake. Frames are parsed here, because a connection can be handed
over to another process only between two frames, and the library's parser does not expose its position.
No extensions: per-connection compression costs more than it saves when one event goes to many clients.
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from ipaddress import ip_address
from typing import NamedTuple
from urllib.parse import urlsplit

from websockets.frames import Opcode as FrameOpcode
from websockets.http11 import Request
from websockets.server import ServerProtocol
from websockets.typing import Subprotocol
from websockets.utils import apply_mask

from kafkaesque.edge.protocol.codec import Encoding, decode_pair, encode_pair
from kafkaesque.edge.protocol.codes import CloseCode, Violation
from kafkaesque.edge.protocol.framing import (
    CLOSE_TEXT_LENGTH_MAX,
    FRAME_SIZE_BYTES_BEFORE_AUTH,
    ControlFrame,
)
from kafkaesque.edge.protocol.messages import Message

SUBPROTOCOLS = {"kafkaesque.v1.json": Encoding.JSON, "kafkaesque.v1.msgpack": Encoding.MSGPACK}
REQUEST_SIZE_BYTES_MAX = 16 * 1024
FRAGMENTS_MAX = 64
_CONTROL_SIZE_BYTES_MAX = 125
_library_log = logging.getLogger(f"{__name__}.library")
_library_log.setLevel(logging.WARNING)
_END_OF_REQUEST = b"\r\n\r\n"


class HandshakeResult(NamedTuple):
    """The outcome of a handshake. `encoding` None: rejected; send `answer` and close."""

    answer: bytes
    encoding: Encoding | None
    forwarded_for: str
    rest: bytes


@dataclass(frozen=True, slots=True)
class OriginRule:
    """Which web pages may connect: those of the same host, the listed origins, or any (`*`). Programs
    other than browsers send no Origin and are allowed.

    The same host counts only if it is `localhost`, an IP address or one of `hosts`. Any other name may
    be an attacker's that resolves to this gateway (DNS rebinding), and then Host equals Origin, too.
    """

    allowed: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()

    def allows(self, origin: str | None, host: str | None) -> bool:
        if origin is None or "*" in self.allowed or origin in self.allowed:
            return True
        if host is None or urlsplit(origin).netloc.lower() != host.lower():
            return False
        return self._is_own_host(host)

    def _is_own_host(self, host: str) -> bool:
        name = (host if host.endswith("]") else host.rsplit(":", 1)[0]).strip("[]").lower()
        if name == "localhost" or name in (known.lower() for known in self.hosts):
            return True
        try:
            ip_address(name)
        except ValueError:
            return False
        return True


class Handshake:
    """Collects the HTTP upgrade request, then answers it."""

    def __init__(self, origins: OriginRule) -> None:
        self._origins = origins
        self._request = b""

    def feed(self, data: bytes) -> HandshakeResult | None:
        """None while the request is incomplete."""
        self._request += data
        end = self._request.find(_END_OF_REQUEST)
        if end < 0:
            if len(self._request) > REQUEST_SIZE_BYTES_MAX:
                raise Violation(CloseCode.TOO_LARGE, "the HTTP request is too long")
            return None
        end += len(_END_OF_REQUEST)
        return self._answer(self._request[:end], self._request[end:])

    def _answer(self, request: bytes, rest: bytes) -> HandshakeResult:
        protocol = ServerProtocol(
            subprotocols=[Subprotocol(name) for name in SUBPROTOCOLS], logger=_library_log
        )
        protocol.receive_data(request)
        found = [event for event in protocol.events_received() if isinstance(event, Request)]
        if not found:
            return HandshakeResult(b"".join(protocol.data_to_send()), None, "", rest)
        headers = found[0].headers
        origin, host = _one(headers.get_all("Origin")), _one(headers.get_all("Host"))
        if self._origins.allows(origin, host):
            protocol.send_response(protocol.accept(found[0]))
        else:
            protocol.send_response(
                protocol.reject(403, f"origin {origin} on host {host} is not allowed\n")
            )
        chosen = protocol.subprotocol
        encoding = None if chosen is None else SUBPROTOCOLS[chosen]
        forwarded = ", ".join(headers.get_all("X-Forwarded-For"))
        return HandshakeResult(b"".join(protocol.data_to_send()), encoding, forwarded, rest)


def _one(values: list[str]) -> str | None:
    return values[0] if len(values) == 1 else None if not values else "?"


class WebSocketFraming:
    """The frames of a WebSocket after its handshake; see Framing."""

    __slots__ = ("_fragments", "_rest", "_size_bytes_max", "encoding")

    def __init__(self, encoding: Encoding, rest: bytes = b"") -> None:
        self.encoding = encoding
        self._rest = rest
        self._fragments: list[bytes] = []
        self._size_bytes_max = FRAME_SIZE_BYTES_BEFORE_AUTH

    @property
    def kind(self) -> str:
        return "websocket"

    def allow(self, size_bytes_max: int) -> None:
        self._size_bytes_max = size_bytes_max

    def encode(self, message: Message) -> bytes:
        text = self.encoding is Encoding.JSON
        opcode = FrameOpcode.TEXT if text else FrameOpcode.BINARY
        return encode_frame(opcode, encode_pair(message, self.encoding))

    def encode_close(self, code: CloseCode, text: str) -> bytes:
        reason = text.encode()[:CLOSE_TEXT_LENGTH_MAX].decode(errors="ignore").encode()
        return encode_frame(FrameOpcode.CLOSE, struct.pack(">H", code) + reason)

    def rest(self) -> bytes | None:
        return None if self._fragments else self._rest

    def feed(self, data: bytes) -> Iterator[Message | ControlFrame]:
        buffer = self._rest + data if self._rest else bytes(data)
        start = 0
        try:
            while (parsed := self._parse_frame(buffer, start)) is not None:
                final, opcode, payload, start = parsed
                if opcode >= FrameOpcode.CLOSE:
                    yield _control_frame(opcode, payload)
                elif (whole := self._assemble(final, opcode, payload)) is not None:
                    yield decode_pair(whole, self.encoding)
        finally:
            # Once per call, not per frame: a buffer of many small frames would be copied repeatedly.
            self._rest = buffer[start:]

    def _parse_frame(self, buffer: bytes, start: int) -> tuple[bool, int, bytes, int] | None:
        """FIN, opcode, payload and end of the frame at `start`; None if it is incomplete."""
        held = len(buffer) - start
        if held < 2:
            return None
        first, second = buffer[start], buffer[start + 1]
        opcode, length, at = first & 0x0F, second & 0x7F, start + 2
        if first & 0x70 or not second & 0x80:
            raise Violation(CloseCode.BAD_FRAME, "unmasked frame, or reserved bits set")
        if length >= 126:
            width = 2 if length == 126 else 8
            if held < 2 + width:
                return None
            length = int.from_bytes(buffer[at : at + width], "big")
            at += width
        self._check(opcode, bool(first & 0x80), length)
        end = at + 4 + length
        if len(buffer) < end:
            return None
        payload = apply_mask(buffer[at + 4 : end], buffer[at : at + 4])
        return bool(first & 0x80), opcode, bytes(payload), end

    def _check(self, opcode: int, final: bool, length: int) -> None:
        if opcode not in _OPCODES:
            raise Violation(CloseCode.BAD_FRAME, f"unknown WebSocket opcode {opcode}")
        if opcode >= FrameOpcode.CLOSE and (length > _CONTROL_SIZE_BYTES_MAX or not final):
            raise Violation(CloseCode.BAD_FRAME, "control frame too long or fragmented")
        held = sum(map(len, self._fragments))
        if held + length > self._size_bytes_max or len(self._fragments) >= FRAGMENTS_MAX:
            limit = self._size_bytes_max
            raise Violation(
                CloseCode.TOO_LARGE, f"message of {length} bytes exceeds the limit of {limit}"
            )

    def _assemble(self, final: bool, opcode: int, payload: bytes) -> bytes | None:
        if (opcode == FrameOpcode.CONT) != bool(self._fragments):
            raise Violation(CloseCode.BAD_FRAME, "unexpected fragment")
        expected = FrameOpcode.TEXT if self.encoding is Encoding.JSON else FrameOpcode.BINARY
        if opcode not in (FrameOpcode.CONT, expected):
            raise Violation(CloseCode.BAD_FRAME, "JSON requires text frames, msgpack binary frames")
        if final:
            whole = b"".join((*self._fragments, payload))
            self._fragments = []
            return whole
        # Keep empty fragments too: a continuation must follow.
        self._fragments.append(payload)
        return None


_OPCODES = frozenset(int(opcode) for opcode in FrameOpcode)


def encode_frame(opcode: int, payload: bytes) -> bytes:
    length = len(payload)
    if length < 126:
        head = struct.pack(">BB", 0x80 | opcode, length)
    elif length < 65_536:
        head = struct.pack(">BBH", 0x80 | opcode, 126, length)
    else:
        head = struct.pack(">BBQ", 0x80 | opcode, 127, length)
    return head + payload


def _control_frame(opcode: int, payload: bytes) -> ControlFrame:
    if opcode == FrameOpcode.PING:
        return ControlFrame(encode_frame(FrameOpcode.PONG, payload), closed=False)
    if opcode == FrameOpcode.PONG:
        return ControlFrame(b"", closed=False)
    # A close frame is answered with the same code (RFC 6455, 5.5.1).
    return ControlFrame(encode_frame(FrameOpcode.CLOSE, payload[:2]), closed=True)
