"""One request over a connection of its own, and the answer of that very broker.

A client library asks whomever it likes and asks again when it is not pleased; a test that looks at
a cluster wants to know what one broker says now.
"""

from __future__ import annotations

import socket
from typing import TypeVar

from kafkaesque.wire.codec import decode_response, encode_request_frame
from kafkaesque.wire.table import Request, Response

R = TypeVar("R", bound=Response)


def wire_call(address: str, request: Request, version: int, answer: type[R], timeout_s: float) -> R:
    """Raises OSError if the broker is not there, closes the connection or takes too long."""
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port)), timeout_s) as connection:
        connection.sendall(
            b"".join(encode_request_frame(request, version, 1, "kafkaesque-testing"))
        )
        size_bytes = int.from_bytes(_read(connection, 4))
        return decode_response(answer, memoryview(_read(connection, size_bytes)), version)


def _read(connection: socket.socket, size_bytes: int) -> bytes:
    data = bytearray()
    while len(data) < size_bytes:
        piece = connection.recv(size_bytes - len(data))
        if not piece:
            raise ConnectionError("the broker closed the connection instead of an answer")
        data += piece
    return bytes(data)
