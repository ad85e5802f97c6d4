"""The coordination server: its socket, its limits, and the timer that expires sessions.

server = CoordinationServer(coordinator, replicated, clock, CoordinationConfig())
await server.start("127.0.0.1", 2181)
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections import Counter
from collections.abc import Callable, Sequence

from kafkaesque.broker.coordination.config import CoordinationConfig
from kafkaesque.broker.coordination.connection import CoordinationConnection
from kafkaesque.broker.coordination.coordinator import Coordinator
from kafkaesque.broker.coordination.four_letter_words import PacketCounts, ServerView, answer_word
from kafkaesque.broker.coordination.host import NoRegistries, Registries, Served
from kafkaesque.broker.coordination.replicated import NotCommitted, Replicated
from kafkaesque.broker.coordination.rules.commands import CloseSession, Command, encode_command
from kafkaesque.broker.coordination.rules.machine import find_reapable
from kafkaesque.broker.coordination.rules.sessions import PASSWORD_BYTES
from kafkaesque.model.clock import Clock
from kafkaesque.model.errors import check

logger = logging.getLogger("kafkaesque.coordination")

STALL_S = 1.0
"""A tick later than this means that the process was paused or swapped out: clients could not be heard
meanwhile, so no session is expired for it."""

_BACKLOG = 1024
_SESSION_MARK = 1 << 56
"""Keeps ids positive and distinct from the marks of containers and TTLs, as ZooKeeper's server id."""


class CoordinationServer:
    """Implements `host.Host` for every connection that it accepts."""

    def __init__(
        self,
        coordinator: Coordinator,
        replicated: Replicated,
        clock: Clock,
        config: CoordinationConfig,
        failed: Callable[[BaseException], None] | None = None,
        registries: Registries | None = None,
    ) -> None:
        """`failed` is called with an unexpected error, so that the node can stop."""
        self.coordinator = coordinator
        self.replicated = replicated
        self.config = config
        self.counts = PacketCounts()
        self.registries: Registries = registries or NoRegistries()
        self._clock = clock
        self._failed = failed
        self._server: asyncio.Server | None = None
        self._connections: dict[Served, float] = {}
        """With the monotonic time at which each was accepted."""
        self._by_address: Counter[str] = Counter()
        self._ticker: asyncio.Task[None] | None = None
        self._term: int | None = None
        """The term in which this server measures sessions' silence; None while it does not lead."""
        self._ticked_s = clock.monotonic()
        self._reaped_s = clock.monotonic()

    async def start(self, host: str, port: int) -> None:
        """Starts to serve; port 0 picks a free one, see `address`."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(
            lambda: CoordinationConnection(self, secrets.randbits(63)), host, port, backlog=_BACKLOG
        )
        self.start_timer()

    def start_timer(self) -> None:
        """Expires sessions and reaps nodes while leading, even without clients of its own."""
        self._ticked_s = self._clock.monotonic()
        self._ticker = asyncio.get_running_loop().create_task(self._run())

    @property
    def address(self) -> tuple[str, int]:
        check(self._server is not None and bool(self._server.sockets), "the server is not started")
        host, port = self._server.sockets[0].getsockname()[:2]  # type: ignore[union-attr]
        return host, port

    @property
    def role(self) -> str:
        """As in `srvr` and `mntr`, with ZooKeeper's names."""
        if self.replicated.is_leader:
            return "leader"
        return "follower" if self.replicated.is_voter else "observer"

    @property
    def connection_count(self) -> int:
        return len(self._connections)

    async def stop(self) -> None:
        """Stops accepting and closes all connections; sessions stay alive, for another server."""
        if self._ticker is not None:
            self._ticker.cancel()
            await asyncio.wait((self._ticker,))
        if self._server is not None:
            self._server.close()
        for connection in tuple(self._connections):
            connection.end("the server stops")
        await asyncio.sleep(0)
        for connection in tuple(self._connections):
            connection.abort()
        await asyncio.sleep(0)

    def abort(self) -> None:
        """Drops all connections at once; `stop` is still due."""
        if self._server is not None:
            self._server.close()
        for connection in tuple(self._connections):
            connection.abort()

    # -- timer ----------------------------------------------------------------------------------

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(self.config.tick_interval_ms / 1000)
            try:
                await self.tick()
            except NotCommitted as error:
                logger.warning("sessions could not be expired: %s", error)
            except Exception as error:  # noqa: BLE001 - supervisor: the node decides
                self.failed(error)

    async def tick(self) -> None:
        """One round: reports touched sessions to the leader; as the leader, expires silent ones."""
        now_s = self._clock.monotonic()
        is_late = now_s - self._ticked_s > STALL_S + self.config.tick_interval_ms / 1000
        self._ticked_s = now_s
        self._close_idle_connections(now_s)
        for connection in self._connections:
            connection.touch_if_paused()
        touched = self.coordinator.take_touched()
        if not self.replicated.is_available:
            self._term = None
            self._disconnect_all()
            return
        if touched:
            self.replicated.touch_sessions(touched)
        self.registries.tick()
        if not self.replicated.is_leader:
            self._term = None
            return
        if is_late or self._term != self.replicated.term:
            self._term = self.replicated.term
            self.coordinator.restart_expiry()
            return
        await self._propose(self._expired_sessions(now_s))
        if now_s - self._reaped_s >= self.config.reap_interval_ms / 1000:
            self._reaped_s = now_s
            await self._propose(find_reapable(self.coordinator.machine.tree, self.wall_ms()))

    def _expired_sessions(self, now_s: float) -> list[Command]:
        sessions = self.coordinator.machine.sessions
        ended = self.coordinator.expiry.expired(now_s)
        return [
            CloseSession(session_id, sessions[session_id].owner, is_expired=True)
            for session_id in ended
            if session_id in sessions
        ]

    async def _propose(self, commands: Sequence[Command]) -> None:
        """Proposes all, then raises NotCommitted if one failed."""
        proposals = [self.replicated.propose(encode_command(command)) for command in commands]
        for outcome in await asyncio.gather(*proposals, return_exceptions=True):
            if isinstance(outcome, BaseException):
                raise outcome

    def _close_idle_connections(self, now_s: float) -> None:
        limit_s = now_s - self.config.connect_timeout_ms / 1000
        for connection, accepted_s in tuple(self._connections.items()):
            if accepted_s < limit_s and not connection.view.session_id:
                connection.abort()

    def _disconnect_all(self) -> None:
        for connection in tuple(self._connections):
            connection.end("this server has no quorum")

    # -- host.Host ------------------------------------------------------------------------------

    def accept(self, connection: Served, address: str) -> str | None:
        config = self.config
        if not self.replicated.is_available:
            return "this server has no quorum"
        if config.max_connections and len(self._connections) >= config.max_connections:
            return f"maxCnxns={config.max_connections} reached"
        per_host = config.max_connections_per_host
        if per_host and self._by_address[address] >= per_host:
            return f"maxClientCnxns={per_host} reached"
        self._by_address[address] += 1
        self._connections[connection] = self._clock.monotonic()
        return None

    def lost(self, connection: Served, address: str) -> None:
        if self._connections.pop(connection, None) is None:
            return
        self._by_address[address] -= 1
        if not self._by_address[address]:
            del self._by_address[address]

    def wall_ms(self) -> int:
        return self._clock.wall_ms()

    def new_session(self) -> tuple[int, bytes]:
        return _SESSION_MARK | secrets.randbits(56), secrets.token_bytes(PASSWORD_BYTES)

    def answer_word(self, word: str) -> str:
        view = ServerView(
            self.coordinator.machine,
            self.counts,
            self.coordinator.watches.counts(),
            [connection.view for connection in self._connections],
            sum(connection.outstanding for connection in self._connections),
            self.role,
        )
        return answer_word(word, view, self.config.four_letter_words)

    def failed(self, error: BaseException) -> None:
        logger.error("the coordination service failed", exc_info=error)
        if self._failed is not None:
            self._failed(error)
