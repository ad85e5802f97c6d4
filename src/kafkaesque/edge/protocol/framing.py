"""Framing of a connection: bytes to messages and back, on the gateway's side, and the TCP frames.

A TCP frame is version (1 byte), payload length (4), opcode (2), payload; all numbers are unsigned and
big-endian. The parser buffers at most one frame of the allowed size.

`Framing` is the common interface of TCP and WebSocket (websocket.py). It hides the transport from the
gateway, and its `rest()` is all that another process needs to continue a connection.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple, Protocol

from kafkaesque.edge.protocol.codec import Encoding, decode_payload, encode_payload, sniff_encoding
from kafkaesque.edge.protocol.codes import CloseCode, Violation
from kafkaesque.edge.protocol.messages import OPCODES, PROTOCOL_VERSION, Bye, Message

_HEADER = struct.Struct(">BIH")
HEADER_SIZE_BYTES = _HEADER.size
FRAME_SIZE_BYTES_DEFAULT = 64 * 1024
FRAME_SIZE_BYTES_BEFORE_AUTH = 8 * 1024
"""Enough for a token or a password; unauthenticated clients get no more."""


class Frame(NamedTuple):
    opcode: int
    payload: bytes


def encode_frame(opcode: int, payload: bytes) -> bytes:
    return _HEADER.pack(PROTOCOL_VERSION, len(payload), opcode) + payload


class FrameParser:
    """Splits bytes into frames. `rest` holds the bytes of an incomplete frame: the parser's whole state."""

    __slots__ = ("rest", "size_bytes_max")

    def __init__(self, size_bytes_max: int = FRAME_SIZE_BYTES_DEFAULT, rest: bytes = b"") -> None:
        self.size_bytes_max = size_bytes_max
        self.rest = rest

    def feed(self, data: bytes) -> Iterator[Frame]:
        """Yields the complete frames, then raises Violation if the next one is invalid. The size limit may
        change between two frames."""
        buffer = self.rest + data if self.rest else bytes(data)
        start = 0
        try:
            while (end := self._end(buffer, start)) is not None:
                opcode = _HEADER.unpack_from(buffer, start)[2]
                payload = buffer[start + HEADER_SIZE_BYTES : end]
                start = end
                yield Frame(opcode, payload)
        finally:
            # Once per call, not per frame: a buffer of many small frames would be copied repeatedly.
            self.rest = buffer[start:]

    def _end(self, buffer: bytes, start: int) -> int | None:
        """Where the frame at `start` ends; None if it is incomplete."""
        held = len(buffer) - start
        if held and buffer[start] != PROTOCOL_VERSION:
            text = f"frame version {buffer[start]}; expected {PROTOCOL_VERSION}"
            raise Violation(CloseCode.BAD_VERSION, text)
        if held < HEADER_SIZE_BYTES:
            return None
        length = _HEADER.unpack_from(buffer, start)[1]
        if length > self.size_bytes_max:
            raise Violation(
                CloseCode.TOO_LARGE,
                f"frame of {length} bytes exceeds the limit of {self.size_bytes_max}",
            )
        end = start + HEADER_SIZE_BYTES + length
        return end if end <= len(buffer) else None


CLOSE_TEXT_LENGTH_MAX = 100
"""A WebSocket close frame holds at most 123 bytes of reason."""


class ControlFrame(NamedTuple):
    """A control frame of the transport: the bytes to answer with, and whether the peer has closed."""

    answer: bytes
    closed: bool


class Framing(Protocol):
    """Turns a connection's bytes into messages and back."""

    encoding: Encoding

    @property
    def kind(self) -> str:
        """`tcp` or `websocket`."""
        ...

    def feed(self, data: bytes) -> Iterator[Message | ControlFrame]:
        """Yields complete messages. Raises Violation, and nothing else, for invalid bytes."""
        ...

    def allow(self, size_bytes_max: int) -> None:
        """Accepts frames up to this size; before authentication the limit is lower."""
        ...

    def encode(self, message: Message) -> bytes: ...

    def encode_close(self, code: CloseCode, text: str) -> bytes:
        """The last bytes to send before the connection is closed."""
        ...

    def rest(self) -> bytes | None:
        """Received bytes of an incomplete message. None: the connection cannot be handed over now."""
        ...


class TcpFraming:
    """TCP frames. The first payload determines the encoding."""

    __slots__ = ("_parser", "_sniffed", "encoding")

    def __init__(self, encoding: Encoding | None = None, rest: bytes = b"") -> None:
        self._sniffed = encoding is not None
        self.encoding = encoding or Encoding.JSON
        self._parser = FrameParser(FRAME_SIZE_BYTES_BEFORE_AUTH, rest)

    @property
    def kind(self) -> str:
        return "tcp"

    def feed(self, data: bytes) -> Iterator[Message | ControlFrame]:
        for opcode, payload in self._parser.feed(data):
            if not self._sniffed:
                self.encoding = sniff_encoding(payload)
                self._sniffed = True
            yield decode_payload(opcode, payload, self.encoding)

    def allow(self, size_bytes_max: int) -> None:
        self._parser.size_bytes_max = size_bytes_max

    def encode(self, message: Message) -> bytes:
        return encode_frame(OPCODES[type(message)], encode_payload(message, self.encoding))

    def encode_close(self, code: CloseCode, text: str) -> bytes:
        return self.encode(Bye(int(code), code.reconnect, text[:CLOSE_TEXT_LENGTH_MAX]))

    def rest(self) -> bytes | None:
        return self._parser.rest
