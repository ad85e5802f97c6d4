"""All connections of a gateway: admission, deadlines, closing, freezing for a handover."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import socket
from collections.abc import Callable, Iterator

from kafkaesque.edge.protocol.codes import CloseCode
from kafkaesque.edge.protocol.websocket import OriginRule
from kafkaesque.gateway.client_connection import ClientConnection
from kafkaesque.gateway.config import GatewayConfig
from kafkaesque.gateway.counters import Counters
from kafkaesque.gateway.handover_state import ConnectionState, session_from, wire_from
from kafkaesque.gateway.message_handler import MessageHandler
from kafkaesque.gateway.rules.handshake import HandshakeRules
from kafkaesque.gateway.rules.session import Deadline, EdgeSession
from kafkaesque.model.clock import Clock

SILENCE_HEARTBEATS = 2.5

_CLOSES = {
    Deadline.AUTH: (CloseCode.AUTH_TIMEOUT, "not authenticated in time"),
    Deadline.IDLE: (CloseCode.IDLE, "no message or heartbeat received"),
    Deadline.SLOW: (CloseCode.TOO_SLOW, "the client does not read"),
    Deadline.EXPIRED: (CloseCode.AUTH_EXPIRED, "the token has expired"),
}


class ConnectionRegistry:
    """The open connections. Implements `client_connection.ConnectionOwner`."""

    def __init__(
        self, config: GatewayConfig, clock: Clock, counters: Counters, handler: MessageHandler
    ) -> None:
        self._config = config
        self._clock = clock
        self._counters = counters
        self._handler = handler
        self._connections: set[ClientConnection] = set()
        self._frozen = False
        self._empty = asyncio.Event()
        self._empty.set()
        self.handshake_rules = HandshakeRules.of(
            OriginRule(config.ws_origins, config.ws_hosts),
            config.proxy_protocol,
            config.proxy_trusted,
        )
        self.write_buffer_bytes = config.write_buffer_bytes

    def __len__(self) -> int:
        return len(self._connections)

    def __iter__(self) -> Iterator[ClientConnection]:
        return iter(list(self._connections))

    def new_connection(self) -> ClientConnection:
        """The protocol factory of the listener."""
        now_s = self.now_s()
        session = EdgeSession(secrets.token_hex(8), "", now_s, now_s)
        return ClientConnection(self, self._handler, session)

    # -- client_connection.ConnectionOwner -----------------------------------------------------------

    def now_s(self) -> float:
        return self._clock.monotonic()

    def opened(self, connection: ClientConnection) -> CloseCode | None:
        if self._frozen:
            connection.freeze(frozen=True)
        self._counters.accepted += 1
        self._connections.add(connection)
        self._empty.clear()
        return CloseCode.BUSY if len(self._connections) > self._config.connections_max else None

    def closed(self, connection: ClientConnection, code: CloseCode | None) -> None:
        if connection in self._connections:
            self._remove(connection)
            reason = "peer" if code is None else code.name.lower().replace("_", "-")
            self._counters.closes[reason] += 1
            self._handler.disconnected(connection)

    def _remove(self, connection: ClientConnection) -> None:
        self._connections.discard(connection)
        if not self._connections:
            self._empty.set()

    # -- handover ------------------------------------------------------------------------------------

    def freeze(self, *, frozen: bool) -> None:
        """Pauses or resumes reading from all clients."""
        self._frozen = frozen
        for connection in self:
            connection.freeze(frozen=frozen)

    def handed_over(self, connection: ClientConnection) -> None:
        """Another process has the connection now. Its user has not left."""
        self._handler.detach(connection)
        self._remove(connection)
        if connection.transport is not None:
            # Closes only this process's copy of the socket.
            connection.transport.abort()

    async def adopt(self, state: ConnectionState, sock: socket.socket) -> None:
        """Continues a connection of the previous process, whose user has been here all the time."""
        session = session_from(state, self.now_s())
        wire = wire_from(state, self._config.frame_max_bytes)
        connection = ClientConnection(self, self._handler, session, wire)
        sock.setblocking(False)

        async def restore() -> None:
            await asyncio.get_running_loop().connect_accepted_socket(lambda: connection, sock)
            self._counters.handed_over += 1
            await self._handler.restore(connection, state)

        # The event loop may read from the socket before `connect_accepted_socket` returns.
        await connection.run_step(restore())

    # -- closing -------------------------------------------------------------------------------------

    def close_overdue(self) -> None:
        config, now_s, now_ms = self._config, self.now_s(), self._clock.wall_ms()
        auth_s = config.auth_timeout_ms / 1000
        silence_s = config.heartbeat_ms * SILENCE_HEARTBEATS / 1000
        slow_s = config.slow_timeout_ms / 1000
        for connection in self:
            deadline = connection.session.missed_deadline(now_s, now_ms, auth_s, silence_s, slow_s)
            if deadline is not None:
                connection.close(*_CLOSES[deadline])

    def close_token(self, token_id: str) -> None:
        """Closes the connections of a token that was logged out, here or on another gateway."""
        self._close_if(
            lambda session: session.identity is not None and session.identity.token_id == token_id,
            CloseCode.REVOKED,
            "logged out elsewhere",
        )

    def close_all(self, code: CloseCode, text: str) -> None:
        self._close_if(lambda _session: True, code, text)

    def _close_if(self, matches: Callable[[EdgeSession], bool], code: CloseCode, text: str) -> None:
        for connection in self:
            if matches(connection.session):
                connection.close(code, text)

    def abort_all(self) -> None:
        for connection in self:
            if connection.transport is not None:
                connection.transport.abort()

    async def wait_empty(self, timeout_s: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._empty.wait()
