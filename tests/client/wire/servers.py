"""A peer for one connection, and the frames of a scripted broker."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Callable, Iterator

from kafkaesque.model.address import Address
from kafkaesque.model.errors import ErrorCode
from kafkaesque.wire.codec import encode_response_frame
from kafkaesque.wire.messages.api_versions import ApiVersion, ApiVersionsResponse
from kafkaesque.wire.table import Response

API_VERSIONS = ApiVersionsResponse(
    error_code=ErrorCode.NONE,
    api_keys=[ApiVersion(api_key=key, min_version=0, max_version=1) for key in (3, 17, 18, 36)],
)


@contextlib.contextmanager
def peer(serve: Callable[[socket.socket], None]) -> Iterator[Address]:
    """A server for one connection."""
    listener = socket.create_server(("127.0.0.1", 0))

    def run() -> None:
        with listener, contextlib.suppress(OSError):
            connection, _ = listener.accept()
            with connection:
                serve(connection)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield Address("127.0.0.1", listener.getsockname()[1])
    finally:
        with contextlib.suppress(OSError):
            socket.create_connection(listener.getsockname(), 1).close()
        thread.join()


def read_request(connection: socket.socket) -> tuple[int, int, bytes]:
    """Version, correlation id and the whole frame of the next request."""
    size = int.from_bytes(connection.recv(4, socket.MSG_WAITALL), "big")
    frame = connection.recv(size, socket.MSG_WAITALL)
    version, correlation_id = struct.unpack_from(">hi", frame, 2)
    return version, correlation_id, frame


def framed(response: Response, version: int, correlation_id: int) -> bytes:
    buffers, _ = encode_response_frame(response, version, correlation_id)
    return b"".join(buffers)


def answer(connection: socket.socket, response: Response) -> bytes:
    """Answer the next request in its own version; returns its frame."""
    version, correlation_id, frame = read_request(connection)
    connection.sendall(framed(response, version, correlation_id))
    return frame
