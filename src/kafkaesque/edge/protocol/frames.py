"""TCP frames, in the order of seed 000: version (1 byte), payload length (4), opcode (2), payload.

All numbers are big-endian and without sign. Nothing is buffered beyond one frame of the allowed size.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

from kafkaesque.edge.protocol.codes import CloseCode, Violation
from kafkaesque.edge.protocol.opcodes import PROTOCOL_VERSION

_HEADER = struct.Struct(">BIH")
HEADER_SIZE_BYTES = _HEADER.size
FRAME_SIZE_BYTES_DEFAULT = 64 * 1024
FRAME_SIZE_BYTES_BEFORE_AUTH = 8 * 1024
"""A token or a password needs no more, and a stranger gets no more."""


class Frame(NamedTuple):
    opcode: int
    payload: bytes


def encode_frame(opcode: int, payload: bytes) -> bytes:
    return _HEADER.pack(PROTOCOL_VERSION, len(payload), opcode) + payload


class FrameParser:
    """Bytes in, frames out. `rest` is what does not yet make a frame: all that there is to hand over."""

    __slots__ = ("rest", "size_bytes_max")

    def __init__(self, size_bytes_max: int = FRAME_SIZE_BYTES_DEFAULT, rest: bytes = b"") -> None:
        self.size_bytes_max = size_bytes_max
        self.rest = rest

    def feed(self, data: bytes) -> Iterator[Frame]:
        """Violation once what came before it has been handed out. The limit may change between two
        frames."""
        buffer = self.rest + data if self.rest else bytes(data)
        start = 0
        try:
            while (end := self._end(buffer, start)) is not None:
                opcode = _HEADER.unpack_from(buffer, start)[2]
                payload = buffer[start + HEADER_SIZE_BYTES : end]
                start = end
                yield Frame(opcode, payload)
        finally:
            # Once, and not for each frame: a buffer of many small ones would be copied over and over.
            self.rest = buffer[start:]

    def _end(self, buffer: bytes, start: int) -> int | None:
        """Where the frame at `start` ends; None if it is not whole."""
        held = len(buffer) - start
        if held and buffer[start] != PROTOCOL_VERSION:
            text = f"version {buffer[start]}, not {PROTOCOL_VERSION}"
            raise Violation(CloseCode.BAD_VERSION, text)
        if held < HEADER_SIZE_BYTES:
            return None
        length = _HEADER.unpack_from(buffer, start)[1]
        if length > self.size_bytes_max:
            raise Violation(
                CloseCode.TOO_LARGE, f"a frame of {length} bytes, {self.size_bytes_max} are allowed"
            )
        end = start + HEADER_SIZE_BYTES + length
        return end if end <= len(buffer) else None
