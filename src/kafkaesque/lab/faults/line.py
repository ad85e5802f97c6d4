"""One connection that asks one question at a time, in the bytes of Kafka's protocol."""

from __future__ import annotations

import socket
from typing import Final, TypeVar

from kafkaesque.wire.codec import decode_response, encode_request_frame
from kafkaesque.wire.table import Request, Response

R = TypeVar("R", bound=Response)

_LENGTH_BYTES: Final = 4


class Line:
    """Opened when it is first needed and again after a failure.

    Every question raises OSError if the broker is not there, hangs up or takes too long.
    """

    def __init__(self, address: str, timeout_s: float) -> None:
        host, _, port = address.rpartition(":")
        self._address = host, int(port)
        self._timeout_s = timeout_s
        self._connection: socket.socket | None = None

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def ask(self, request: Request, version: int, answer: type[R]) -> R:
        try:
            if self._connection is None:
                self._connection = socket.create_connection(self._address, self._timeout_s)
            frame = b"".join(encode_request_frame(request, version, 1, "kafkaesque-fault"))
            self._connection.sendall(frame)
            size_bytes = int.from_bytes(self._read(_LENGTH_BYTES))
            return decode_response(answer, memoryview(self._read(size_bytes)), version)
        except OSError:
            # An answer that comes too late must not be taken for that of the next question.
            self.close()
            raise

    def _read(self, size_bytes: int) -> bytes:
        data = bytearray()
        while len(data) < size_bytes:
            if self._connection is None:
                raise ConnectionError("the connection was closed")
            piece = self._connection.recv(size_bytes - len(data))
            if not piece:
                raise ConnectionError("the broker closed the connection instead of an answer")
            data += piece
        return bytes(data)
