"""One connection to one broker, by our own codec: requests that librdkafka lacks, or cannot batch.

librdkafka asks for the offsets of one consumer group at a time and knows neither log directories
nor the quorum; a console that watches a thousand groups asks for a hundred in one request.
Requests are pipelined; answers come in order, as Kafka promises.
"""

from __future__ import annotations

import asyncio
import ssl
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, TypeVar

from kafkaesque.console.cluster.sasl import Credentials, authenticate
from kafkaesque.model.errors import ProtocolError
from kafkaesque.model.limits import MIB
from kafkaesque.wire.codec import decode_correlation_id, decode_response, encode_request_frame
from kafkaesque.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kafkaesque.wire.table import Request, Response

R = TypeVar("R", bound=Response)

ANSWER_BYTES_MAX: Final = 100 * MIB
CONNECT_SECONDS_MAX: Final = 10.0
CALL_SECONDS_MAX: Final = 15.0
CLIENT_ID: Final = "kafkaesque-console"


class Unreachable(Exception):
    """The broker is not there, does not answer, or answers nonsense."""


class NotOffered(Exception):
    """This Kafka has no such request: what it would tell is absent."""


@dataclass(frozen=True, slots=True)
class Security:
    """How connections are made: plain or TLS, anonymous or by SASL."""

    tls: ssl.SSLContext | None = None
    credentials: Credentials | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    """The same in librdkafka's words, for the clients that read and write records."""


class KafkaLink:
    """Made by `open`; broken once anything goes wrong, and then to be opened anew."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._waiting: deque[tuple[int, asyncio.Future[memoryview]]] = deque()
        self._number = 0
        self._versions: dict[int, int] = {}
        self._receiving: asyncio.Task[None] | None = None

    @classmethod
    async def open(cls, host: str, port: int, security: Security) -> KafkaLink:
        link = None
        try:
            async with asyncio.timeout(CONNECT_SECONDS_MAX):
                reader, writer = await asyncio.open_connection(host, port, ssl=security.tls)
                link = cls(reader, writer)
                if security.credentials is not None:
                    await authenticate(reader, writer, security.credentials)
                link._receiving = asyncio.create_task(link._receive())
                await link._learn_versions()
        except (OSError, TimeoutError, ProtocolError, asyncio.IncompleteReadError) as error:
            if link is not None:
                link.close()
            reason = str(error) or type(error).__name__
            raise Unreachable(f"{host}:{port}: {reason}") from None
        return link

    @property
    def is_open(self) -> bool:
        return self._receiving is not None and not self._receiving.done()

    def close(self) -> None:
        if self._receiving is not None:
            self._receiving.cancel()
        self._writer.close()

    def offers(self, request: type[Request]) -> bool:
        return self._versions.get(request.API_KEY, -1) >= request.VERSIONS.low

    def version_of(self, request: type[Request], version_max: int) -> int:
        """The newest that both sides have; NotOffered if there is none."""
        version = min(self._versions.get(request.API_KEY, -1), request.VERSIONS.high, version_max)
        if version < request.VERSIONS.low:
            raise NotOffered(request.__name__)
        return version

    async def call(self, request: Request, answer: type[R], version_max: int = 99) -> R:
        """Unreachable, NotOffered, or the answer."""
        version = self.version_of(type(request), version_max)
        try:
            async with asyncio.timeout(CALL_SECONDS_MAX):
                return decode_response(answer, await self._send(request, version), version)
        except (OSError, TimeoutError, ProtocolError) as error:
            self.close()
            raise Unreachable(str(error) or type(error).__name__) from None

    def _send(self, request: Request, version: int) -> asyncio.Future[memoryview]:
        if self._receiving is not None and self._receiving.done():
            raise ConnectionError("the connection is closed")
        self._number += 1
        future: asyncio.Future[memoryview] = asyncio.get_running_loop().create_future()
        self._waiting.append((self._number, future))
        self._writer.writelines(encode_request_frame(request, version, self._number, CLIENT_ID))
        return future

    async def _receive(self) -> None:
        error: Exception = ConnectionError("the broker closed the connection")
        try:
            while True:
                size = int.from_bytes(await self._reader.readexactly(4))
                if size > ANSWER_BYTES_MAX:
                    raise ProtocolError(f"an answer of {size} bytes")
                frame = memoryview(await self._reader.readexactly(size))
                number, future = self._waiting.popleft()
                if decode_correlation_id(frame) != number:
                    raise ProtocolError("answers out of order")
                if not future.done():
                    future.set_result(frame)
        except (OSError, ProtocolError, IndexError) as problem:
            error = ConnectionError(str(problem))
        except asyncio.IncompleteReadError:
            pass
        finally:
            self._writer.close()
            for _, future in self._waiting:
                if not future.done():
                    future.set_exception(error)
                    future.exception()  # whoever gave up waiting does not ask for it any more

    async def _learn_versions(self) -> None:
        request = ApiVersionsRequest(
            client_software_name="kafkaesque-console", client_software_version="1"
        )
        # v3 is refused by Kafka before 2.4 with an answer in v0: those are not met any more.
        answer = decode_response(ApiVersionsResponse, await self._send(request, 3), 3)
        if answer.error_code:
            raise ProtocolError(f"ApiVersions was refused with error {answer.error_code}")
        self._versions = {item.api_key: item.max_version for item in answer.api_keys}
