"""An asyncio connection to one broker. Requests are pipelined."""

from __future__ import annotations

import asyncio
import secrets
import ssl
from collections import deque
from typing import Any, Final, TypeVar

from kafkaesque.client.wire.errors import AuthenticationFailed, ConnectionLost, reason
from kafkaesque.client.wire.protocol import LENGTH_BYTES, ClientProtocol, Exchange
from kafkaesque.client.wire.sasl import SaslCredentials
from kafkaesque.model.address import Address
from kafkaesque.model.errors import ProtocolError
from kafkaesque.wire.table import VERSION_MAX, Request, Response

R = TypeVar("R", bound=Response)

CONNECT_TIMEOUT_S: Final = 10.0
"""For TCP, TLS and the handshake together."""
CALL_TIMEOUT_S: Final = 15.0


class AsyncConnection:
    """Made by `open`. Any error closes it; open a new one then."""

    def __init__(
        self,
        address: Address,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        client_id: str,
    ) -> None:
        self.address = address
        self._reader = reader
        self._writer = writer
        self._protocol = ClientProtocol(str(address), client_id)
        # One for each request in flight, in the order in which the protocol expects responses.
        self._waiting: deque[asyncio.Future[Any]] = deque()
        self._receiving = asyncio.create_task(self._receive())

    @classmethod
    async def open(
        cls,
        address: Address,
        *,
        tls: ssl.SSLContext | None = None,
        credentials: SaslCredentials | None = None,
        client_id: str = "kafkaesque",
        negotiates: bool = True,
        timeout_s: float = CONNECT_TIMEOUT_S,
    ) -> AsyncConnection:
        """Raises ConnectionLost; AuthenticationFailed if trying again does not help.

        Without `negotiates`, every call must name its version, and there is no SASL.
        """
        try:
            async with asyncio.timeout(timeout_s):
                reader, writer = await asyncio.open_connection(*address, ssl=tls)
                connection = cls(address, reader, writer, client_id)
                try:
                    if negotiates:
                        await connection._shake_hands(credentials)
                except BaseException:
                    # The caller cannot close a connection that is not returned.
                    connection.close()
                    raise
                return connection
        except ssl.SSLCertVerificationError as error:
            raise AuthenticationFailed(f"{address}: {error.verify_message}") from error
        except ConnectionLost:
            raise
        except (OSError, ProtocolError) as error:
            raise ConnectionLost(f"{address}: {reason(error)}") from error

    @property
    def is_open(self) -> bool:
        return not self._receiving.done()

    @property
    def protocol(self) -> ClientProtocol:
        """For the versions that were negotiated."""
        return self._protocol

    def close(self) -> None:
        self._receiving.cancel()
        self._writer.close()

    async def call(
        self,
        request: Request,
        response: type[R],
        *,
        version: int | None = None,
        version_max: int = VERSION_MAX,
        timeout_s: float = CALL_TIMEOUT_S,
    ) -> R:
        """Sends in `version`, or in the newest common one. Raises ApiUnsupported or ConnectionLost."""
        if version is None:
            version = self._protocol.choose_version(type(request), version_max)
        try:
            async with asyncio.timeout(timeout_s):
                answer: R = await self._send(request, response, version)
        except OSError as error:
            self.close()
            raise ConnectionLost(f"{self.address}: {reason(error)}") from error
        return answer

    def _send(
        self, request: Request, response: type[Response], version: int
    ) -> asyncio.Future[Any]:
        """Resolves to a `response`: the protocol decodes nothing else for this request."""
        if not self.is_open:
            raise ConnectionError("the connection is closed")
        frame = self._protocol.encode(request, response, version)
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting.append(future)
        self._writer.writelines(frame)
        return future

    async def _shake_hands(self, credentials: SaslCredentials | None) -> None:
        steps = self._protocol.handshake(credentials, secrets.token_urlsafe(18))
        try:
            step: Exchange = next(steps)
            while True:
                step = steps.send(await self._send(step.request, step.response, step.version))
        except StopIteration:
            return

    async def _receive(self) -> None:
        error: Exception = ConnectionError("the broker closed the connection")
        reader, protocol, waiting = self._reader, self._protocol, self._waiting
        try:
            while True:
                size_bytes = protocol.frame_size(await reader.readexactly(LENGTH_BYTES))
                answer = protocol.decode(memoryview(await reader.readexactly(size_bytes)))
                future = waiting.popleft()
                if not future.done():
                    future.set_result(answer)
        except (OSError, ProtocolError) as problem:
            said = "does not speak Kafka: " if isinstance(problem, ProtocolError) else ""
            error = ConnectionError(f"{said}{reason(problem)}")
        except asyncio.IncompleteReadError:
            pass
        finally:
            self._writer.close()
            for future in waiting:
                if not future.done():
                    future.set_exception(error)
                    # A caller that gave up does not retrieve it; asyncio would log it.
                    future.exception()
