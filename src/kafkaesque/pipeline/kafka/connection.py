"""One blocking connection to one broker: requests out, answers in, in order.

Versions are agreed by ApiVersions once per connection. Everything that can go wrong on the way is
a `ConnectionLost`: the caller decides whether to try again. No retry and no metadata here.
"""

from __future__ import annotations

import socket
import ssl
import struct
from collections import deque
from types import TracebackType
from typing import NamedTuple, Self, TypeVar

from kafkaesque.model.errors import ErrorCode, ProtocolError
from kafkaesque.model.limits import REQUEST_SIZE_BYTES_DEFAULT
from kafkaesque.pipeline.errors import KafkaRefused
from kafkaesque.pipeline.kafka.security import Security, sasl_exchange
from kafkaesque.wire.api import RESPONSES
from kafkaesque.wire.codec import decode_correlation_id, decode_response, encode_request_frame
from kafkaesque.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kafkaesque.wire.table import Bytes, Int16, Int64, Request, Response, String, f

R = TypeVar("R", bound=Response)

CLIENT_ID = "kafkaesque-pipeline"
RESPONSE_SIZE_BYTES_MAX = REQUEST_SIZE_BYTES_DEFAULT
RECEIVE_BUFFER_BYTES = 4 << 20
KEPT_FRAME_BYTES_MIN = 64 << 10

VERSION_CEILINGS = {1: 12, 8: 9}
"""Fetch 13 and OffsetCommit 10 go by topic id; what Spark planned goes by name."""

_LENGTH = struct.Struct(">i")


class SaslHandshakeRequest(Request, key=17, versions="0-1"):
    """Which mechanism; v1 puts the exchange into SaslAuthenticate requests (KIP-152)."""

    mechanism: String = f("0+")


class SaslHandshakeResponse(Response, key=17, versions="0-1"):
    error_code: Int16 = f("0+")
    mechanisms: list[String] = f("0+")


class SaslAuthenticateRequest(Request, key=36, versions="0-1"):
    auth_bytes: Bytes = f("0+")


class SaslAuthenticateResponse(Response, key=36, versions="0-1"):
    error_code: Int16 = f("0+")
    error_message: String | None = f("0+", nullable="0+")
    auth_bytes: Bytes = f("0+")
    session_lifetime_ms: Int64 = f("1+", default=0)


_OWN_RESPONSES: dict[int, type[Response]] = {
    17: SaslHandshakeResponse,
    36: SaslAuthenticateResponse,
}


class Address(NamedTuple):
    """Where a broker listens."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


class ConnectionLost(Exception):
    """The broker cannot be reached, went away, or does not speak Kafka."""


class _Expected(NamedTuple):
    correlation_id: int
    version: int
    response: type[Response]


class Connection:
    """For one thread. Answers come in the order of requests; `send` may run ahead of `receive`.

    A large answer lies in memory that the next one is received into: whoever wants its records
    for longer copies them. (Fresh memory for each 4 MiB costs as much as decoding it.)
    """

    def __init__(self, address: Address, security: Security, timeout_s: float) -> None:
        self.address = address
        self._timeout_s = timeout_s
        self._correlation_id = 0
        self._expected: deque[_Expected] = deque()
        self._versions: dict[int, tuple[int, int]] = {}
        self._kept = bytearray()
        self._socket = self._open(security)
        try:
            self._introduce()
            if security.mechanism is not None:
                self._authenticate(security)
        except BaseException:
            # Nobody gets this connection, so nobody else would close its socket; the error goes on.
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def is_idle(self) -> bool:
        """No answer is outstanding, so that another may use the connection."""
        return not self._expected

    def close(self) -> None:
        self._socket.close()

    def call(self, request: Request, response: type[R]) -> R:
        """Send and wait. Nothing else may be outstanding."""
        self.send(request)
        return self.receive(response)

    def send(self, request: Request) -> None:
        key = request.API_KEY
        version = self.version(request)
        self._correlation_id += 1
        frame = b"".join(encode_request_frame(request, version, self._correlation_id, CLIENT_ID))
        answer = _OWN_RESPONSES.get(key) or RESPONSES[key]
        try:
            self._socket.sendall(frame)
        except OSError as error:
            raise ConnectionLost(f"{self.address}: {error}") from error
        self._expected.append(_Expected(self._correlation_id, version, answer))

    def receive(self, response: type[R]) -> R:
        expected = self._expected.popleft()
        frame = self._receive_frame()
        try:
            if decode_correlation_id(frame) != expected.correlation_id:
                raise ProtocolError("the answer belongs to another request")
            answer = decode_response(expected.response, frame, expected.version)
        except ProtocolError as error:
            raise ConnectionLost(f"{self.address} does not speak Kafka: {error}") from error
        if not isinstance(answer, response):
            raise ConnectionLost(f"{self.address}: {type(answer).__name__} is not what was due")
        return answer

    def version(self, request: Request) -> int:
        """The newest version of a request that both sides have."""
        key = request.API_KEY
        low, high = self._versions.get(key, (0, 0))
        newest = min(high, request.VERSIONS.high, VERSION_CEILINGS.get(key, high))
        if key == ApiVersionsRequest.API_KEY:
            return 0
        if key not in self._versions or newest < max(low, request.VERSIONS.low):
            raise KafkaRefused(
                f"{self.address} has no version of {type(request).__name__} in common"
            )
        return newest

    def _open(self, security: Security) -> socket.socket:
        try:
            plain = socket.create_connection(self.address, self._timeout_s)
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER_BYTES)
        except OSError as error:
            raise ConnectionLost(f"{self.address}: {error}") from error
        if not security.uses_tls:
            return plain
        try:
            context = security.tls_context()
            return context.wrap_socket(plain, server_hostname=self.address.host)
        except ssl.SSLCertVerificationError as error:
            plain.close()
            raise KafkaRefused(f"{self.address}: {error.verify_message}") from error
        except OSError as error:
            plain.close()
            raise ConnectionLost(f"{self.address}: {error}") from error

    def _introduce(self) -> None:
        # Version 0 of ApiVersions is the one that every broker from 0.10 to 4.x answers.
        answer = self.call(ApiVersionsRequest(), ApiVersionsResponse)
        if answer.error_code:
            raise KafkaRefused(
                f"{self.address} refused ApiVersions: {error_name(answer.error_code)}"
            )
        self._versions = {
            api.api_key: (api.min_version, api.max_version) for api in answer.api_keys
        }

    def _authenticate(self, security: Security) -> None:
        mechanism = security.mechanism or ""
        self._require_api(17, "SASL")
        handshake = self.call(SaslHandshakeRequest(mechanism=mechanism), SaslHandshakeResponse)
        if handshake.error_code:
            raise KafkaRefused(
                f"{self.address} has no {mechanism}, only {', '.join(handshake.mechanisms)}"
            )
        client = sasl_exchange(security)
        message: bytes | None = client.first()
        while message is not None:
            answer = self.call(
                SaslAuthenticateRequest(auth_bytes=message), SaslAuthenticateResponse
            )
            if answer.error_code:
                raise KafkaRefused(
                    f"{self.address} refused user '{security.username}': "
                    f"{answer.error_message or error_name(answer.error_code)}"
                )
            message = client.answer(bytes(answer.auth_bytes))

    def _require_api(self, key: int, what: str) -> None:
        if key not in self._versions:
            raise KafkaRefused(f"{self.address} does not know {what}")

    def _receive_frame(self) -> memoryview:
        head = bytearray(_LENGTH.size)
        self._receive_into(memoryview(head))
        (size_bytes,) = _LENGTH.unpack(head)
        if not 4 <= size_bytes <= RESPONSE_SIZE_BYTES_MAX:
            raise ConnectionLost(
                f"{self.address} does not speak Kafka: a frame of {size_bytes} bytes"
            )
        frame = self._room(size_bytes)
        self._receive_into(frame)
        return frame

    def _room(self, size_bytes: int) -> memoryview:
        if size_bytes < KEPT_FRAME_BYTES_MIN:
            return memoryview(bytearray(size_bytes))
        if size_bytes > len(self._kept):
            self._kept = bytearray(size_bytes)
        return memoryview(self._kept)[:size_bytes]

    def _receive_into(self, view: memoryview) -> None:
        filled = 0
        try:
            while filled < len(view):
                count = self._socket.recv_into(view[filled:])
                if count == 0:
                    raise ConnectionLost(f"{self.address} closed the connection")
                filled += count
        except OSError as error:
            raise ConnectionLost(f"{self.address}: {error}") from error


def error_name(code: int) -> str:
    """Kafka's name of an error code, or the number of one that we do not know."""
    try:
        return ErrorCode(code).name
    except ValueError:
        return f"error {code}"
