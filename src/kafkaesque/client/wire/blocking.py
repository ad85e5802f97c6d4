"""Blocking connections to one broker, for one thread.

No retry and no metadata: everything that goes wrong is a ConnectionLost, and the caller decides
whether to try again.
"""

from __future__ import annotations

import secrets
import socket
import ssl
import time
from types import TracebackType
from typing import Final, Self, TypeVar

from kafkaesque.client.wire.errors import AuthenticationFailed, ConnectionLost, reason
from kafkaesque.client.wire.protocol import LENGTH_BYTES, ClientProtocol, Exchange
from kafkaesque.client.wire.security import PLAINTEXT, Security
from kafkaesque.model.address import Address
from kafkaesque.model.errors import ProtocolError
from kafkaesque.wire.table import VERSION_MAX, Request, Response

R = TypeVar("R", bound=Response)

KEPT_FRAME_BYTES_MIN: Final = 64 << 10
"""Smaller responses get memory of their own."""


class BlockingConnection:
    """One connection. Responses arrive in the order of requests; `send` may run ahead of `receive`.

    `timeout_s` bounds the connection attempt and each response. A large response is in memory that
    the next response overwrites: copy records that are needed for longer. (Fresh memory for every
    4 MiB costs as much as decoding it.) Any error closes the connection.
    """

    def __init__(
        self,
        address: Address,
        security: Security = PLAINTEXT,
        *,
        timeout_s: float,
        client_id: str = "kafkaesque",
        negotiates: bool = True,
        receive_buffer_bytes: int | None = None,
    ) -> None:
        """Without `negotiates`, every call must name its version, and there is no SASL."""
        self.address = address
        self._timeout_s = timeout_s
        self._protocol = ClientProtocol(str(address), client_id)
        self._kept = bytearray()
        self._is_open = True
        self._socket = self._connect(security, receive_buffer_bytes)
        if negotiates:
            try:
                self._shake_hands(security)
            except BaseException:
                # The caller cannot close the socket of a connection that is not returned.
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
        """Open, and no response is outstanding: another caller may use the connection."""
        return self._is_open and not self._protocol.in_flight

    @property
    def protocol(self) -> ClientProtocol:
        """For the versions that were negotiated."""
        return self._protocol

    def close(self) -> None:
        self._is_open = False
        self._socket.close()

    def detach(self) -> socket.socket:
        """The connected socket, for a caller with a loop of its own. This object is closed."""
        self._is_open = False
        return self._socket

    def call(
        self,
        request: Request,
        response: type[R],
        *,
        version: int | None = None,
        version_max: int = VERSION_MAX,
    ) -> R:
        """Send and wait. No other response may be outstanding."""
        self.send(request, response, version=version, version_max=version_max)
        return self.receive(response)

    def send(
        self,
        request: Request,
        response: type[Response],
        *,
        version: int | None = None,
        version_max: int = VERSION_MAX,
    ) -> None:
        """Sends in `version`, or in the newest common one. Raises ApiUnsupported or ConnectionLost."""
        if version is None:
            version = self._protocol.choose_version(type(request), version_max)
        frame = b"".join(self._protocol.encode(request, response, version))
        try:
            self._socket.sendall(frame)
        except OSError as error:
            raise self._lost(error) from error

    def receive(self, response: type[R]) -> R:
        """The next response, which must be of this type. Raises ConnectionLost."""
        try:
            answer = self._protocol.decode(self._receive_frame())
        except (OSError, ProtocolError) as error:
            raise self._lost(error) from error
        if not isinstance(answer, response):
            raise self._lost(ProtocolError(f"{type(answer).__name__} is not the next response"))
        return answer

    def _connect(self, security: Security, receive_buffer_bytes: int | None) -> socket.socket:
        context = security.tls_context()
        try:
            plain = socket.create_connection(self.address, self._timeout_s)
        except OSError as error:
            raise ConnectionLost(f"{self.address}: {reason(error)}") from error
        try:
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if receive_buffer_bytes is not None:
                plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
            if context is None:
                return plain
            return context.wrap_socket(plain, server_hostname=self.address.host)
        except ssl.SSLCertVerificationError as error:
            plain.close()
            raise AuthenticationFailed(f"{self.address}: {error.verify_message}") from error
        except OSError as error:
            plain.close()
            raise ConnectionLost(f"{self.address}: {reason(error)}") from error

    def _shake_hands(self, security: Security) -> None:
        steps = self._protocol.handshake(security.credentials, secrets.token_urlsafe(18))
        try:
            step: Exchange = next(steps)
            while True:
                step = steps.send(self.call(step.request, step.response, version=step.version))
        except StopIteration:
            return
        except ProtocolError as error:
            raise self._lost(error) from error

    def _lost(self, error: Exception) -> ConnectionLost:
        self.close()
        said = "does not speak Kafka: " if isinstance(error, ProtocolError) else ""
        return ConnectionLost(f"{self.address}: {said}{reason(error)}")

    def _receive_frame(self) -> memoryview:
        deadline = time.monotonic() + self._timeout_s
        prefix = bytearray(LENGTH_BYTES)
        receive_into(self._socket, memoryview(prefix), deadline)
        frame = self._room(self._protocol.frame_size(prefix))
        receive_into(self._socket, frame, deadline)
        return frame

    def _room(self, size_bytes: int) -> memoryview:
        if size_bytes < KEPT_FRAME_BYTES_MIN:
            return memoryview(bytearray(size_bytes))
        if size_bytes > len(self._kept):
            self._kept = bytearray(size_bytes)
        return memoryview(self._kept)[:size_bytes]


def receive_into(sock: socket.socket, view: memoryview, deadline: float) -> None:
    """Fill `view`. The clock is read between pieces; the socket's own timeout bounds each one."""
    filled = 0
    while filled < len(view):
        count = sock.recv_into(view[filled:])
        if count == 0:
            raise ConnectionError("the broker closed the connection")
        filled += count
        if filled < len(view) and time.monotonic() > deadline:
            raise TimeoutError("timed out in the middle of a response")


class BrokerClient:
    """One broker, one request at a time, in versions that the caller chooses.

    Connects when it is first used, and again after a failure: a late response must not be taken for
    that of the next request. Each call raises ConnectionLost (an OSError) if there is no answer.
    """

    def __init__(self, address: Address, *, timeout_s: float, client_id: str) -> None:
        self._address = address
        self._timeout_s = timeout_s
        self._client_id = client_id
        self._connection: BlockingConnection | None = None

    def call(self, request: Request, response: type[R], version: int) -> R:
        connection = self._connection
        if connection is None or not connection.is_idle:
            self.close()
            connection = self._connection = BlockingConnection(
                self._address,
                timeout_s=self._timeout_s,
                client_id=self._client_id,
                negotiates=False,
            )
        return connection.call(request, response, version=version)

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
