"""One connection's bytes to messages and back, the gateway's side; what TCP and WebSocket have in common.

A wire is all that a gateway has to know of a connection's transport, and `rest()` is all that another
process has to be told to go on with it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, Protocol

from kafkaesque.edge.protocol.codec import Encoding, decode_payload, encode_payload, sniff_encoding
from kafkaesque.edge.protocol.codes import CloseCode
from kafkaesque.edge.protocol.frames import FRAME_SIZE_BYTES_BEFORE_AUTH, FrameParser, encode_frame
from kafkaesque.edge.protocol.messages import OPCODES, Bye, Message

CLOSE_TEXT_LENGTH_MAX = 100
"""A WebSocket's close frame holds 123 bytes of reason."""


class Control(NamedTuple):
    """Something of the transport's own: bytes to send back, and whether the peer has closed."""

    answer: bytes
    closed: bool


class Wire(Protocol):
    encoding: Encoding

    @property
    def kind(self) -> str:
        """`tcp` or `websocket`."""
        ...

    def feed(self, data: bytes) -> Iterator[Message | Control]:
        """Violation, and nothing else, for bytes that break the protocol."""
        ...

    def allow(self, size_bytes_max: int) -> None:
        """Take larger frames than strangers may send."""
        ...

    def encode(self, message: Message) -> bytes: ...

    def farewell(self, code: CloseCode, text: str) -> bytes:
        """The last bytes before the connection is closed."""
        ...

    def rest(self) -> bytes | None:
        """Bytes received that make no message yet; None: this connection cannot be handed over now."""
        ...


class TcpWire:
    """Frames of seed 000. The encoding is that of the first payload."""

    __slots__ = ("_parser", "_sniffed", "encoding")

    def __init__(self, encoding: Encoding | None = None, rest: bytes = b"") -> None:
        self._sniffed = encoding is not None
        self.encoding = encoding or Encoding.JSON
        self._parser = FrameParser(FRAME_SIZE_BYTES_BEFORE_AUTH, rest)

    @property
    def kind(self) -> str:
        return "tcp"

    def feed(self, data: bytes) -> Iterator[Message | Control]:
        for opcode, payload in self._parser.feed(data):
            if not self._sniffed:
                self.encoding = sniff_encoding(payload)
                self._sniffed = True
            yield decode_payload(opcode, payload, self.encoding)

    def allow(self, size_bytes_max: int) -> None:
        self._parser.size_bytes_max = size_bytes_max

    def encode(self, message: Message) -> bytes:
        return encode_frame(OPCODES[type(message)], encode_payload(message, self.encoding))

    def farewell(self, code: CloseCode, text: str) -> bytes:
        return self.encode(Bye(int(code), code.reconnect, text[:CLOSE_TEXT_LENGTH_MAX]))

    def rest(self) -> bytes | None:
        return self._parser.rest
