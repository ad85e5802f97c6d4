"""The byte stream of one client: incoming frames, and a bounded buffer of outgoing data."""

from __future__ import annotations

import asyncio
import logging

from kafkaesque.broker.coordination.four_letter_words import PacketCounts
from kafkaesque.model.errors import ProtocolError

_LENGTH_BYTES = 4


class FrameSplitter:
    """Splits a stream into frames: a four-byte length, then that many bytes.

    Raises ProtocolError for an invalid length, before the frame is buffered.
    """

    __slots__ = ("_buffer", "_position", "limit_bytes")

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self._buffer = bytearray()
        self._position = 0
        """The bytes before it are consumed; the next `feed` removes them all at once."""

    def feed(self, data: bytes) -> None:
        if self._position:
            del self._buffer[: self._position]
            self._position = 0
        self._buffer += data

    def first_word(self) -> bytes:
        """The first four bytes of the connection; they may be a four-letter word, not a length."""
        return bytes(self._buffer[:_LENGTH_BYTES])

    def next_frame(self) -> bytes | None:
        """The next complete frame without its length; None until there is one."""
        buffer = self._buffer
        start = self._position + _LENGTH_BYTES
        if len(buffer) < start:
            return None
        size_bytes = int.from_bytes(buffer[self._position : start], "big", signed=True)
        if not 0 <= size_bytes <= self.limit_bytes:
            raise ProtocolError(f"a frame of {size_bytes} bytes; the limit is {self.limit_bytes}")
        end = start + size_bytes
        if len(buffer) < end:
            return None
        self._position = end
        return bytes(buffer[start:end])


logger = logging.getLogger("kafkaesque.coordination")


class WriteBuffer:
    """Collects everything sent in one turn of the event loop into one write, one system call."""

    __slots__ = ("_counts", "_limit_bytes", "_parts", "_transport")

    def __init__(
        self, transport: asyncio.Transport, limit_bytes: int, counts: PacketCounts
    ) -> None:
        self._transport = transport
        self._limit_bytes = limit_bytes
        self._counts = counts
        self._parts: list[bytes] = []

    def put(self, data: bytes) -> None:
        """Sends `data` after everything put before."""
        if not self._parts:
            asyncio.get_running_loop().call_soon(self.flush)
        self._parts.append(data)

    def flush(self) -> None:
        """Writes to the socket now. A client that does not read is disconnected."""
        parts, self._parts = self._parts, []
        transport = self._transport
        if not parts or transport.is_closing():
            return
        self._counts.sent += len(parts)
        transport.write(b"".join(parts))
        if transport.get_write_buffer_size() > self._limit_bytes:
            logger.warning(
                "disconnected %s: it does not read its answers",
                transport.get_extra_info("peername"),
            )
            transport.abort()
