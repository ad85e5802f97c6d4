"""A TCP relay between a client and the broker that drops some answers.

It rewrites the broker's address in answers, so that the client keeps using the relay.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Callable
from types import TracebackType

# Correlation id to (api key, is the answer to be lost), shared by a connection's two threads.
Awaited = dict[int, tuple[int, bool]]

PRODUCE, METADATA, FIND_COORDINATOR, DESCRIBE_CLUSTER = 0, 3, 10, 60


class Relay:
    """Listens on a port of its own; drops the answer to the n-th Produce if `loses(n)`."""

    def __init__(self, upstream: str, loses: Callable[[int], bool]) -> None:
        host, _, port = upstream.split(",")[0].rpartition(":")
        self._upstream = (host, int(port))
        self._loses = loses
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self.produce_count = 0
        self.lost_count = 0
        self._lock = threading.Lock()
        self._links: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def __enter__(self) -> Relay:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for link in self._links:
            _cut(link)
        for thread in self._threads:
            thread.join(10)
        for link in self._links:
            link.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            broker = socket.create_connection(self._upstream)
            self._links += [client, broker]
            awaited: Awaited = {}
            for work in (self._requests, self._answers):
                thread = threading.Thread(target=work, args=(client, broker, awaited), daemon=True)
                self._threads.append(thread)
                thread.start()

    def _requests(self, client: socket.socket, broker: socket.socket, awaited: Awaited) -> None:
        while (frame := _frame(client)) is not None:
            api_key, _version, correlation_id = struct.unpack_from(">hhi", frame, 4)
            lose = False
            if api_key == PRODUCE:
                with self._lock:
                    self.produce_count += 1
                    lose = self._loses(self.produce_count)
            awaited[correlation_id] = (api_key, lose)
            try:
                broker.sendall(frame)
            except OSError:
                break
        _cut(broker)

    def _answers(self, client: socket.socket, broker: socket.socket, awaited: Awaited) -> None:
        while (frame := _frame(broker)) is not None:
            (correlation_id,) = struct.unpack_from(">i", frame, 4)
            api_key, lose = awaited.pop(correlation_id, (-1, False))
            if lose:
                # The broker has appended, but the client gets no answer on this connection.
                self.lost_count += 1
                break
            if api_key in (METADATA, FIND_COORDINATOR, DESCRIBE_CLUSTER):
                frame = self._with_our_address(frame)
            try:
                client.sendall(frame)
            except OSError:
                break
        _cut(client)
        _cut(broker)

    def _with_our_address(self, frame: bytes) -> bytes:
        host, port = self._upstream
        theirs = host.encode() + struct.pack(">i", port)
        return frame.replace(theirs, b"127.0.0.1" + struct.pack(">i", self.port))


def _frame(link: socket.socket) -> bytes | None:
    try:
        head = _exactly(link, 4)
        return head + _exactly(link, *struct.unpack(">i", head))
    except OSError:
        return None


def _exactly(link: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        more = link.recv(size - len(data))
        if not more:
            raise ConnectionError
        data += more
    return bytes(data)


def _cut(link: socket.socket) -> None:
    with contextlib.suppress(OSError):
        link.shutdown(socket.SHUT_RDWR)
