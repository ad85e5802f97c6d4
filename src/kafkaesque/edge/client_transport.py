"""A client's connection to a gateway over TCP, TLS or WebSocket, selected by the address's scheme.

127.0.0.1:7000   tcp://HOST:PORT   tls://HOST:PORT   ws://HOST:PORT/   wss://HOST:PORT/
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import Iterable, Sequence
from typing import Protocol

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, WebSocketException
from websockets.typing import Subprotocol

from kafkaesque.edge.protocol.codec import (
    Encoding,
    decode_pair,
    decode_payload,
    encode_pair,
    encode_payload,
)
from kafkaesque.edge.protocol.codes import CloseCode, Violation
from kafkaesque.edge.protocol.framing import FrameParser, encode_frame
from kafkaesque.edge.protocol.messages import OPCODES, Bye, Message
from kafkaesque.model.address import parse_address

READ_SIZE_BYTES = 64 * 1024
EVENT_SIZE_BYTES_MAX = 4 * 1024 * 1024
"""The largest frame of a gateway; an event is at most one record of the log."""
CONNECT_SECONDS_MAX = 10.0


class TransportClosed(Exception):
    """The connection closed. `reconnect` is the gateway's advice; True if it gave none."""

    def __init__(self, text: str, code: int = 0, *, reconnect: bool = True) -> None:
        super().__init__(text)
        self.code = code
        self.reconnect = reconnect


class ClientTransport(Protocol):
    """Sends and receives messages over one connection."""

    async def send(self, messages: Iterable[Message]) -> None: ...

    async def receive(self) -> Sequence[Message]:
        """Returns at least one message; raises TransportClosed at the end."""
        ...

    async def close(self) -> None: ...


class TcpTransport:
    """TCP or TLS, with the frames of framing.py."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, encoding: Encoding
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._encoding = encoding
        self._parser = FrameParser(EVENT_SIZE_BYTES_MAX)

    async def send(self, messages: Iterable[Message]) -> None:
        self._writer.write(
            b"".join(
                encode_frame(OPCODES[type(message)], encode_payload(message, self._encoding))
                for message in messages
            )
        )
        try:
            await self._writer.drain()
        except OSError as error:
            raise TransportClosed(str(error)) from None

    async def receive(self) -> Sequence[Message]:
        found: list[Message] = []
        while not found:
            try:
                data = await self._reader.read(READ_SIZE_BYTES)
                if not data:
                    raise TransportClosed("the gateway closed the connection")
                found = [
                    decode_payload(opcode, payload, self._encoding)
                    for opcode, payload in self._parser.feed(data)
                ]
            except (OSError, Violation) as error:
                raise TransportClosed(str(error)) from None
        return found

    async def close(self) -> None:
        self._writer.close()
        with contextlib.suppress(OSError):
            await self._writer.wait_closed()


class WebSocketTransport:
    """WebSocket; each message is a pair of opcode and payload."""

    def __init__(self, socket: ClientConnection, encoding: Encoding) -> None:
        self._socket = socket
        self._encoding = encoding

    async def send(self, messages: Iterable[Message]) -> None:
        try:
            for message in messages:
                data = encode_pair(message, self._encoding)
                text = self._encoding is Encoding.JSON
                await self._socket.send(data.decode() if text else data)
        except ConnectionClosed as closed:
            raise _transport_closed(closed) from None

    async def receive(self) -> Sequence[Message]:
        try:
            return [decode_pair(await self._socket.recv(decode=False), self._encoding)]
        except ConnectionClosed as closed:
            raise _transport_closed(closed) from None
        except Violation as error:
            raise TransportClosed(str(error)) from None

    async def close(self) -> None:
        await self._socket.close()


def _transport_closed(closed: ConnectionClosed) -> TransportClosed:
    if closed.rcvd is None:
        return TransportClosed("the gateway closed the connection")
    return closed_by(Bye(closed.rcvd.code, _is_reconnect(closed.rcvd.code), closed.rcvd.reason))


def _is_reconnect(code: int) -> bool:
    return code < CloseCode.BAD_VERSION


def closed_by(bye: Bye) -> TransportClosed:
    return TransportClosed(
        bye.message or f"closed with {bye.code}", bye.code, reconnect=bye.reconnect
    )


async def open_transport(
    address: str, encoding: Encoding, tls: ssl.SSLContext | None = None
) -> ClientTransport:
    """Raises TransportClosed if the connection cannot be opened."""
    scheme, _, place = address.rpartition("://")
    try:
        async with asyncio.timeout(CONNECT_SECONDS_MAX):
            if scheme in ("ws", "wss"):
                return await _open_websocket(address, encoding, tls)
            secure = tls or ssl.create_default_context() if scheme == "tls" else None
            host, port = parse_address(place)
            reader, writer = await asyncio.open_connection(
                host, port, ssl=secure, limit=READ_SIZE_BYTES
            )
            return TcpTransport(reader, writer, encoding)
    except (OSError, TimeoutError, ValueError, WebSocketException) as error:
        raise TransportClosed(f"cannot connect to {address}: {error!r}") from None


async def _open_websocket(
    address: str, encoding: Encoding, tls: ssl.SSLContext | None
) -> WebSocketTransport:
    socket = await connect(
        address,
        subprotocols=[Subprotocol(f"kafkaesque.v1.{encoding.value}")],
        ssl=tls if address.startswith("wss") else None,
        compression=None,
        ping_interval=None,
        max_size=EVENT_SIZE_BYTES_MAX,
    )
    return WebSocketTransport(socket, encoding)
