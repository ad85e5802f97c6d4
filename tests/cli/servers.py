"""Small servers for the tests of the doctor: a scripted Kafka, and servers that are not Kafka."""

from __future__ import annotations

import socket
import struct
import threading
from types import TracebackType
from typing import Self

from kafkaesque.admin.cluster import BrokerNode
from kafkaesque.model.errors import ErrorCode
from kafkaesque.wire.codec import encode_response_frame
from kafkaesque.wire.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    SupportedFeatureKey,
)
from kafkaesque.wire.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
)
from kafkaesque.wire.table import Response


class ScriptedKafka:
    """Answers ApiVersions and Metadata, or sends `raw_answer` to any request."""

    def __init__(self, brokers: list[BrokerNode], *, raw_answer: bytes | None = None) -> None:
        self.brokers = brokers
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
            buffers, _ = encode_response_frame(self._answer(api), version, correlation)
            connection.sendall(b"".join(buffers))

    def _answer(self, api: int) -> Response:
        if api == MetadataRequest.API_KEY:
            brokers = [
                MetadataResponseBroker(node_id=one.id, host=one.host, port=one.port)
                for one in self.brokers
            ]
            return MetadataResponse(brokers=brokers, topics=[])
        if api != ApiVersionsRequest.API_KEY:
            raise OSError("not in the script")
        return ApiVersionsResponse(
            error_code=ErrorCode.NONE,
            api_keys=[
                ApiVersion(api_key=3, min_version=0, max_version=13),
                ApiVersion(api_key=18, min_version=0, max_version=4),
            ],
            supported_features=[
                SupportedFeatureKey(name="metadata.version", min_version=7, max_version=30)
            ],
        )
