"""All connections of a gateway: who may come in, who has to go, and what the clock says about it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
import socket
from collections.abc import Callable, Collection, Coroutine
from typing import Any

from kafkaesque.edge.protocol.codes import CloseCode
from kafkaesque.edge.protocol.messages import Message
from kafkaesque.gateway.connection import Connection
from kafkaesque.gateway.dialogue import Dialogue
from kafkaesque.gateway.handed import HandedConnection, session_of, wire_of
from kafkaesque.gateway.opening import OpeningRules
from kafkaesque.gateway.rules.session import Deadline, Session
from kafkaesque.gateway.services import Services

logger = logging.getLogger(__name__)

SILENCE_HEARTBEATS = 2.5
TICK_SECONDS_MAX = 1.0
TICK_SECONDS_MIN = 0.05

_CLOSES = {
    Deadline.AUTH: (CloseCode.AUTH_TIMEOUT, "nobody said who it is"),
    Deadline.IDLE: (CloseCode.IDLE, "nothing was heard"),
    Deadline.SLOW: (CloseCode.TOO_SLOW, "nothing was read"),
    Deadline.EXPIRED: (CloseCode.AUTH_EXPIRED, "the token ran out"),
}


class Doors:
    """See `connection.Host`."""

    def __init__(self, services: Services) -> None:
        self._of = services
        self._dialogue = Dialogue(services)
        self._connections: set[Connection] = set()
        self._frozen = False
        self._empty = asyncio.Event()
        self._empty.set()
        self.task: asyncio.Task[None] | None = None
        config = services.config
        self.opening_rules = OpeningRules.of(
            config.ws_origins, config.proxy_protocol, config.proxy_trusted
        )
        self.write_buffer_bytes = config.write_buffer_bytes

    @property
    def connections(self) -> Collection[Connection]:
        return self._connections

    def new_connection(self) -> Connection:
        """The listener's factory."""
        now_s = self.now_s()
        return Connection(self, Session(secrets.token_hex(8), "", now_s, now_s))

    # -- connection.Host -----------------------------------------------------------------------------

    def now_s(self) -> float:
        return self._of.clock.monotonic()

    def opened(self, connection: Connection) -> CloseCode | None:
        if self._frozen:
            connection.freeze(frozen=True)
        self._of.counters.accepted += 1
        self._connections.add(connection)
        self._empty.clear()
        return CloseCode.BUSY if len(self._connections) > self._of.config.connections_max else None

    def heard(self, connection: Connection, message: Message) -> Coroutine[Any, Any, None] | None:
        return self._dialogue.heard(connection, message)

    def drained(self, connection: Connection) -> None:
        self._dialogue.drained(connection)

    def closed(self, connection: Connection, code: CloseCode | None) -> None:
        if connection in self._connections:
            self.release(connection)
            reason = "peer" if code is None else code.name.lower().replace("_", "-")
            self._of.counters.closes[reason] += 1
            self._dialogue.left(connection)

    # -- hand-over -----------------------------------------------------------------------------------

    async def adopt(self, handed: HandedConnection, sock: socket.socket) -> None:
        """Go on with a connection of the process before: its user has been here all the time."""
        session = session_of(handed, self.now_s())
        wire = wire_of(handed, self._of.config.frame_max_bytes)
        connection = Connection(self, session, wire)
        sock.setblocking(False)

        async def settle() -> None:
            await asyncio.get_running_loop().connect_accepted_socket(lambda: connection, sock)
            self._of.counters.handed_over += 1
            await self._dialogue.adopted(connection, handed)

        # The loop may read from the socket before it says that it is connected.
        await connection.occupy(settle())

    def freeze(self, *, frozen: bool) -> None:
        """Stop, or go on, reading from clients."""
        self._frozen = frozen
        for connection in list(self._connections):
            connection.freeze(frozen=frozen)

    def release(self, connection: Connection) -> None:
        """Not ours any more. That its user has left is not said here: another process may have it."""
        self._connections.discard(connection)
        if not self._connections:
            self._empty.set()

    @property
    def dialogue(self) -> Dialogue:
        return self._dialogue

    # -- the clock -----------------------------------------------------------------------------------

    def start(self) -> None:
        self.task = asyncio.create_task(self._tick())

    async def stop(self) -> None:
        if self.task is not None:
            self.task.cancel()
            await asyncio.gather(self.task, return_exceptions=True)

    async def _tick(self) -> None:
        config = self._of.config
        shortest_ms = min(config.heartbeat_ms, config.auth_timeout_ms, config.slow_timeout_ms)
        shortest_ms = min(shortest_ms, config.ask_timeout_ms)
        pause_s = min(TICK_SECONDS_MAX, max(TICK_SECONDS_MIN, shortest_ms / 10_000))
        while True:
            await asyncio.sleep(pause_s)
            self._of.asks.expire(self.now_s())
            self._of.tokens.forget_expired(self._of.clock.wall_ms())
            self._close_overdue()

    def _close_overdue(self) -> None:
        config, now_s, now_ms = self._of.config, self.now_s(), self._of.clock.wall_ms()
        auth_s = config.auth_timeout_ms / 1000
        silence_s = config.heartbeat_ms * SILENCE_HEARTBEATS / 1000
        slow_s = config.slow_timeout_ms / 1000
        for connection in list(self._connections):
            why = connection.session.overdue(now_s, now_ms, auth_s, silence_s, slow_s)
            if why is not None:
                connection.close(*_CLOSES[why])

    def close_token(self, token_id: str) -> None:
        """The token was logged out, here or elsewhere."""
        self._close_if(
            lambda session: session.identity is not None and session.identity.token_id == token_id,
            CloseCode.REVOKED,
            "logged out elsewhere",
        )

    def close_all(self, code: CloseCode, text: str) -> None:
        self._close_if(lambda _session: True, code, text)

    def abort_all(self) -> None:
        for connection in list(self._connections):
            if connection.transport is not None:
                connection.transport.abort()

    async def wait_empty(self, timeout_s: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._empty.wait()

    def _close_if(self, fits: Callable[[Session], bool], code: CloseCode, text: str) -> None:
        for connection in list(self._connections):
            if fits(connection.session):
                connection.close(code, text)
