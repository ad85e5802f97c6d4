"""Small servers on this machine for what a doctor meets: a scripted Kafka, and strangers."""

from __future__ import annotations

import socket
import struct
import threading
from types import TracebackType
from typing import Self

from kafkaesque.cli.raw_kafka import API_VERSIONS, METADATA, Node


class ScriptedKafka:
    """Answers ApiVersions and Metadata, or sends `raw_answer` to whatever comes."""

    def __init__(
        self, brokers: list[Node], *, old: bool = False, raw_answer: bytes | None = None
    ) -> None:
        self.brokers = brokers
        self._old = old
        self._raw_answer = raw_answer
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._server.getsockname()[1]
        self._thread = threading.Thread(target=self._serve)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._server.close()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._server.accept()
            except OSError:
                return
            with connection:
                connection.settimeout(5)
                try:
                    self._talk(connection)
                except OSError:
                    continue

    def _talk(self, connection: socket.socket) -> None:
        while head := connection.recv(4):
            if self._raw_answer is not None:
                connection.sendall(self._raw_answer)
                # Reading what is left first keeps the close from becoming a reset.
                connection.recv(65536)
                return
            frame = connection.recv(int.from_bytes(head, "big"))
            api, version, correlation = struct.unpack_from(">hhi", frame)
            body = struct.pack(">i", correlation) + self._answer(api, version)
            connection.sendall(struct.pack(">i", len(body)) + body)

    def _answer(self, api: int, version: int) -> bytes:
        if api == METADATA:
            body = struct.pack(">i", len(self.brokers))
            for node in self.brokers:
                host = node.host.encode()
                body += struct.pack(">ih", node.id, len(host)) + host
                body += struct.pack(">ih", node.port, -1)
            return body + struct.pack(">ii", 0, 0)
        if api != API_VERSIONS:
            raise OSError("not in the script")
        apis = [(3, 0, 13), (18, 0, 4)]
        if self._old:
            error = 35 if version > 0 else 0
            rows = b"".join(struct.pack(">hhh", *row) for row in apis)
            return struct.pack(">hi", error, len(apis)) + rows
        rows = b"".join(struct.pack(">hhh", *row) + b"\0" for row in apis)
        name = b"metadata.version"
        features = bytes([2, len(name) + 1]) + name + struct.pack(">hh", 7, 30) + b"\0"
        tags = bytes([1, 0, len(features)]) + features
        return struct.pack(">h", 0) + bytes([len(apis) + 1]) + rows + struct.pack(">i", 0) + tags
