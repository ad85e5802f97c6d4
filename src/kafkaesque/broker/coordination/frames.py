"""Bytes to frames: a four-byte length, then that many bytes; bounded before anything is kept."""

from __future__ import annotations

from kafkaesque.model.errors import ProtocolError

_LENGTH_BYTES = 4


class FrameReader:
    """Feeds on what a socket gives. ProtocolError for a length that no frame may have."""

    __slots__ = ("_buffer", "_position", "limit_bytes")

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self._buffer = bytearray()
        self._position = 0
        """What lies before it was taken; it goes with the next `feed`, all at once."""

    def feed(self, data: bytes) -> None:
        if self._position:
            del self._buffer[: self._position]
            self._position = 0
        self._buffer += data

    def first_word(self) -> bytes:
        """The first four bytes, before any frame was taken; they may be a word and no length."""
        return bytes(self._buffer[:_LENGTH_BYTES])

    def next_frame(self) -> bytes | None:
        """The next whole frame without its length, None until there is one."""
        buffer = self._buffer
        start = self._position + _LENGTH_BYTES
        if len(buffer) < start:
            return None
        size_bytes = int.from_bytes(buffer[self._position : start], "big", signed=True)
        if not 0 <= size_bytes <= self.limit_bytes:
            raise ProtocolError(f"a frame of {size_bytes} bytes, {self.limit_bytes} is the most")
        end = start + size_bytes
        if len(buffer) < end:
            return None
        self._position = end
        return bytes(buffer[start:end])
