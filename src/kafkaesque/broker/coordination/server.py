"""The coordination server: its socket, its limits, and the clockwork that ends sessions.

    server = CoordinationServer(coordinator, replicated, clock, CoordinationConfig())
    await server.start("127.0.0.1", 2181)

`LocalServer` is one whose commands live in a journal of this node alone.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

from kafkaesque.broker.coordination.config import CoordinationConfig
from kafkaesque.broker.coordination.connection import Connection
from kafkaesque.broker.coordination.coordinator import Coordinator
from kafkaesque.broker.coordination.host import NoRegistries, Registries, Served
from kafkaesque.broker.coordination.local_journal import JOURNAL_CONFIG, LocalJournal
from kafkaesque.broker.coordination.replicated import NotCommitted, Replicated
from kafkaesque.broker.coordination.rules.commands import CloseSession, Command, encode_command
from kafkaesque.broker.coordination.rules.machine import Machine
from kafkaesque.broker.coordination.rules.reaping import find_reapable
from kafkaesque.broker.coordination.rules.sessions import PASSWORD_BYTES
from kafkaesque.broker.coordination.words import ServerCounts, ServerView, answer_word
from kafkaesque.broker.storage.log import Log
from kafkaesque.broker.storage.open_files import OpenFiles
from kafkaesque.model.clock import Clock
from kafkaesque.model.errors import check

logger = logging.getLogger("kafkaesque.broker.coordination.rules")

STALL_S = 1.0
"""A tick that comes later than this tells that the process stood still (paused, swapped): clients
could not be heard then, so none is ended for its silence."""

_BACKLOG = 1024
_SESSION_MARK = 1 << 56
"""Keeps ids positive and apart from the marks of containers and TTLs, as ZooKeeper's server id."""


class CoordinationServer:
    """Implements `host.Host` for every connection that it accepts."""

    def __init__(
        self,
        coordinator: Coordinator,
        replicated: Replicated,
        clock: Clock,
        config: CoordinationConfig,
        failed: Callable[[BaseException], None] | None = None,
    ) -> None:
        """`failed` is told of what must not happen, so that the node can stop."""
        self.coordinator = coordinator
        self.replicated = replicated
        self.config = config
        self.counts = ServerCounts()
        self.registries: Registries = NoRegistries()
        self._clock = clock
        self._failed = failed
        self._server: asyncio.Server | None = None
        self._connections: dict[Served, float] = {}
        """With when each was accepted, by the monotonic clock."""
        self._by_address: Counter[str] = Counter()
        self._ticker: asyncio.Task[None] | None = None
        self._term: int | None = None
        """The term in which this server counts sessions' silence; None while it does not lead."""
        self._ticked_s = clock.monotonic()
        self._reaped_s = clock.monotonic()

    async def start(self, host: str, port: int) -> None:
        """Serve; port 0 takes a free one, see `address`."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(
            lambda: Connection(self, secrets.randbits(63)), host, port, backlog=_BACKLOG
        )
        self.start_clockwork()

    def start_clockwork(self) -> None:
        """End sessions and reap nodes while leading, even without clients of its own."""
        self._ticked_s = self._clock.monotonic()
        self._ticker = asyncio.get_running_loop().create_task(self._run())

    @property
    def address(self) -> tuple[str, int]:
        check(self._server is not None and bool(self._server.sockets), "the server is not started")
        host, port = self._server.sockets[0].getsockname()[:2]  # type: ignore[union-attr]
        return host, port

    @property
    def role(self) -> str:
        """As `srvr` and `mntr` tell it, in ZooKeeper's words."""
        if self.replicated.is_leader:
            return "leader"
        return "follower" if self.replicated.is_voter else "observer"

    @property
    def connection_count(self) -> int:
        return len(self._connections)

    async def stop(self) -> None:
        """Accept nobody else and close all connections; sessions live on, for another server."""
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
        """Nobody hears of this server any more; `stop` is still due."""
        if self._server is not None:
            self._server.close()
        for connection in tuple(self._connections):
            connection.abort()

    # -- the clockwork --------------------------------------------------------------------------

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(self.config.tick_interval_ms / 1000)
            try:
                await self.tick()
            except NotCommitted as error:
                logger.warning("sessions could not be ended: %s", error)
            except Exception as error:  # noqa: BLE001 - supervisor: the node is told and decides
                self.failed(error)

    async def tick(self) -> None:
        """One round: tell the leader who was heard; as the leader, end who was not."""
        now_s = self._clock.monotonic()
        is_late = now_s - self._ticked_s > STALL_S + self.config.tick_interval_ms / 1000
        self._ticked_s = now_s
        self._close_idle_strangers(now_s)
        for connection in self._connections:
            connection.count_as_heard_if_held_back()
        heard = self.coordinator.take_heard()
        if not self.replicated.is_available:
            self._term = None
            self._let_all_go()
            return
        if heard:
            self.replicated.touch_sessions(heard)
        self.registries.tick()
        if not self.replicated.is_leader:
            self._term = None
            return
        if is_late or self._term != self.replicated.term:
            self._term = self.replicated.term
            self.coordinator.restart_expiry()
            return
        await self._propose(self._ended_sessions(now_s))
        if now_s - self._reaped_s >= self.config.reap_interval_ms / 1000:
            self._reaped_s = now_s
            await self._propose(find_reapable(self.coordinator.machine.tree, self.wall_ms()))

    def _ended_sessions(self, now_s: float) -> list[Command]:
        sessions = self.coordinator.machine.sessions
        ended = self.coordinator.expiry.expired(now_s)
        return [
            CloseSession(session_id, sessions[session_id].owner, is_expired=True)
            for session_id in ended
            if session_id in sessions
        ]

    async def _propose(self, commands: Sequence[Command]) -> None:
        """All of them, then NotCommitted if one failed."""
        proposals = [self.replicated.propose(encode_command(command)) for command in commands]
        for outcome in await asyncio.gather(*proposals, return_exceptions=True):
            if isinstance(outcome, BaseException):
                raise outcome

    def _close_idle_strangers(self, now_s: float) -> None:
        limit_s = now_s - self.config.connect_timeout_ms / 1000
        for connection, accepted_s in tuple(self._connections.items()):
            if accepted_s < limit_s and not connection.view.session_id:
                connection.abort()

    def _let_all_go(self) -> None:
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


class LocalServer(CoordinationServer):
    """A server with a journal of its own in `directory`: one node, no replication."""

    def __init__(
        self,
        directory: Path,
        clock: Clock,
        config: CoordinationConfig | None = None,
        failed: Callable[[BaseException], None] | None = None,
    ) -> None:
        """Opens the journal and replays it. Blocking."""
        coordinator = Coordinator(Machine(), clock)
        log = Log.open(directory, JOURNAL_CONFIG, OpenFiles(None), clean=False)
        self._journal = LocalJournal(log, clock, coordinator, self.failed)
        super().__init__(coordinator, self._journal, clock, config or CoordinationConfig(), failed)
        self._journal.load()

    @property
    def role(self) -> str:
        return "standalone"

    async def start(self, host: str, port: int) -> None:
        self._journal.start()
        await super().start(host, port)

    async def stop(self) -> None:
        await super().stop()
        await self._journal.close()
