"""A gateway: its parts put together, started and stopped in order."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import random
import socket
import ssl
import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

from kafkaesque.client.ports import Log, LogError
from kafkaesque.edge.protocol.codes import CloseCode
from kafkaesque.edge.protocol.messages import GoAway
from kafkaesque.events.gateway import (
    GATEWAY_TOPICS,
    Presence,
    Reply,
    Revocation,
    command_topic,
    partition_of,
)
from kafkaesque.gateway.asks import Asks
from kafkaesque.gateway.commands import CommandWriter
from kafkaesque.gateway.config import GatewayConfig
from kafkaesque.gateway.connection import Connection
from kafkaesque.gateway.coordination import Coordination
from kafkaesque.gateway.counters import Counters, render
from kafkaesque.gateway.doors import Doors
from kafkaesque.gateway.feed import Feed
from kafkaesque.gateway.handed import HandedConnection
from kafkaesque.gateway.keys import Keys, load_key, load_secret
from kafkaesque.gateway.mail import MailReader
from kafkaesque.gateway.passwords import Passwords
from kafkaesque.gateway.presence import PresenceWriter
from kafkaesque.gateway.rules.pacing import waves
from kafkaesque.gateway.rules.stages import Stage
from kafkaesque.gateway.rules.tokens import Tokens, Trust
from kafkaesque.gateway.rules.users import Users
from kafkaesque.gateway.services import Services
from kafkaesque.model.clock import Clock
from kafkaesque.model.errors import InvalidConfig, check

logger = logging.getLogger(__name__)

ASKS_MAX = 20_000
START_SECONDS_MAX = 60.0
START_RETRY_SECONDS = 0.2
LAST_WORDS_SECONDS = 0.5
OWN_KEY_NAME = "gateway.key"


class _Sight:
    """See `feed.FeedSight`."""

    def __init__(self, counters: Counters, clock: Clock) -> None:
        self._counters = counters
        self._clock = clock

    def delivered(self, outlets: int, appended_ms: int) -> None:
        self._counters.pushed(outlets, self._clock.wall_ms() - appended_ms)

    def malformed(self) -> None:
        self._counters.events_malformed += 1


class Gateway:
    """Runs on the current event loop from `start` to `stop`."""

    def __init__(
        self,
        name: str,
        log: Log,
        config: GatewayConfig,
        data: Path,
        clock: Clock,
        *,
        cheap_passwords: bool = False,
    ) -> None:
        self.name = name
        self.config = config
        self._log = log
        self._coordination = Coordination(
            name, config.zookeeper_connect, self._gateways_changed, self._routes_changed
        )
        self.services = self._make_services(data, clock, cheap_passwords)
        self.doors = Doors(self.services)
        self._mail = MailReader(log, name, self)
        self._server: asyncio.Server | None = None
        self.listener: socket.socket | None = None
        self.draining = False
        self.broken = asyncio.Event()
        self._serving = False

    def _make_services(self, data: Path, clock: Clock, cheap_passwords: bool) -> Services:
        config, counters = self.config, Counters()
        tokens = Tokens(
            load_secret(Path(config.secret_file) if config.secret_file else data / OWN_KEY_NAME),
            Trust(
                config.jwt_algorithms,
                load_key(config.jwt_key) if config.jwt_key else "",
                config.jwt_audience,
                config.jwt_issuer,
            ),
            config.token_ttl_ms,
        )
        users = Users(config.send_rate, config.send_burst, config.connections_per_user_max)
        writer = CommandWriter(self._log)
        self._presence = PresenceWriter(self.name, users, writer)
        sight, linger_s = _Sight(counters, clock), config.interest_linger_ms / 1000
        # Correlations of a process that went before must not be taken for ours.
        run = f"{self.name}-{random.getrandbits(32):08x}"
        return Services(
            name=self.name,
            config=config,
            clock=clock,
            counters=counters,
            users=users,
            asks=Asks(run, config.ask_timeout_ms / 1000, ASKS_MAX),
            tokens=tokens,
            keys=Keys(tokens, config.jwt_jwks, clock),
            passwords=Passwords(cheap=cheap_passwords),
            writer=writer,
            inbox=Feed(self._log, "gw.inbox", sight, rooms=False, linger_s=linger_s),
            rooms=Feed(self._log, "gw.rooms", sight, rooms=True, linger_s=linger_s),
            peers=self._coordination,
            presence=self._presence,
        )

    # -- start and stop ------------------------------------------------------------------------------

    async def prepare(self) -> None:
        """Everything but clients."""
        await self._coordination.start()
        await _patiently(lambda: self._log.admin.ensure_topics(GATEWAY_TOPICS))
        await _patiently(self._ensure_routes)
        of = self.services
        await of.keys.start()
        await of.writer.start()
        await _patiently(of.inbox.start)
        await _patiently(of.rooms.start)
        await _patiently(lambda: self._mail.start(self._coordination.slot))
        self._presence.start()
        self.doors.start()
        for part in (of.writer, of.inbox, of.rooms, self._mail, self._presence, self.doors):
            if part.task is not None:
                part.task.add_done_callback(self._part_ended)

    def _part_ended(self, task: asyncio.Task[None]) -> None:
        """A part that ends by itself has met a bug: the process must not go on without it."""
        if not task.cancelled() and task.exception() is not None:
            logger.critical("a part of the gateway failed", exc_info=task.exception())
            self.broken.set()

    async def _ensure_routes(self) -> None:
        """Back ends of a new version may not have been there yet."""
        routes = self._coordination.routes
        await self._log.admin.ensure_topics(
            dataclasses.replace(command_topic(version), name=topic)
            for version, topic in routes.topics.items()
        )

    async def listen(self, host: str, port: int) -> str:
        """Take clients; the address."""
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listener = socket.create_server(
            (host, port), family=family, backlog=self.config.listen_backlog
        )
        return await self.serve(listener)

    async def serve(self, listener: socket.socket) -> str:
        """As `listen`, on a socket that listens already."""
        listener.setblocking(False)
        self.listener = listener
        await self._accept()
        await self._coordination.announce(self.config.advertised_listener or self.address)
        self._serving = True
        return self.address

    async def _accept(self) -> None:
        context = _tls(self.config)
        if self.listener is not None:
            self._server = await asyncio.get_running_loop().create_server(
                self.doors.new_connection,
                # A copy, since the server closes its own; the listener may go to another process.
                sock=self.listener.dup(),
                ssl=context,
                backlog=self.config.listen_backlog,
            )

    # -- hand-over -----------------------------------------------------------------------------------

    def freeze(self) -> socket.socket:
        """Take nothing more from clients, new or old. What they send waits in the kernel."""
        check(self.listener is not None, "only a gateway that serves is handed over")
        self.draining = True
        self._stop_listening()
        self.doors.freeze(frozen=True)
        return self.listener or socket.socket()

    async def thaw(self) -> None:
        """Nobody took over: go on."""
        if self._server is not None:
            return
        self.doors.freeze(frozen=False)
        await self._accept()
        self.draining = False

    async def adopt(self, handed: HandedConnection, sock: socket.socket) -> None:
        """Go on with a connection of the process before this one."""
        await self.doors.adopt(handed, sock)

    @property
    def address(self) -> str:
        if self.listener is None:
            return ""
        host, port = self.listener.getsockname()[:2]
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

    async def drain(self) -> None:
        """Send all clients to other gateways: readiness off first, then in batches."""
        self.draining = True
        config = self.config
        await self._coordination.announce(config.advertised_listener or self.address, draining=True)
        await asyncio.sleep(config.drain_settle_ms / 1000)
        self._stop_listening()
        clients = list(self.doors.connections)
        for wave in waves(clients, config.drain_batch, config.drain_interval_ms, random.random):
            for client, after_ms in wave.clients:
                if isinstance(client, Connection):
                    self._send_away(client, after_ms)
            await asyncio.sleep(wave.wait_ms / 1000)
        await self.doors.wait_empty(config.drain_grace_ms / 1000)
        self.doors.close_all(CloseCode.GOING_AWAY, "this gateway stops")

    def _send_away(self, client: Connection, after_ms: int) -> None:
        if client.session.user is None or client.session.stage is Stage.CLOSED:
            client.close(CloseCode.GOING_AWAY, "this gateway stops")
            return
        count = self.services.inbox.partition_count
        partition = partition_of(client.session.user.name, count)
        client.send(GoAway(after_ms, self._coordination.targets(partition, without_self=True)))
        self.services.counters.drained += 1

    def _stop_listening(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None

    async def stop(self, *, handed_over: bool = False) -> None:
        """What clients said and was not yet written is written. `handed_over`: another process goes on
        as this gateway, so nobody has left."""
        self._serving = False
        self._stop_listening()
        if not handed_over:
            self.doors.close_all(CloseCode.GOING_AWAY, "this gateway stops")
            await self.doors.wait_empty(LAST_WORDS_SECONDS)
            self.doors.abort_all()
        await self.doors.stop()
        await self._presence.stop(flush=not handed_over)
        of = self.services
        await asyncio.gather(of.inbox.stop(), of.rooms.stop(), self._mail.stop())
        await of.writer.stop()
        of.passwords.close()
        if self.listener is not None:
            self.listener.close()
        await self._coordination.stop(keep_node=handed_over)
        await self._log.close()

    # -- mail.Mailbox --------------------------------------------------------------------------------

    def replied(self, correlation: str, reply: Reply) -> None:
        self.services.asks.answer(correlation, reply)

    def revoked(self, token_id: str, revocation: Revocation) -> None:
        tokens, now_ms = self.services.tokens, self.services.clock.wall_ms()
        tokens.revoke(token_id, revocation.until_ms, now_ms)
        self.doors.close_token(token_id)

    def present(self, user: str, presence: Presence | None) -> None:
        self._presence.read(user, presence)

    def _gateways_changed(self) -> None:
        self._presence.gateways_changed(self._coordination.gateways)

    async def _routes_changed(self) -> None:
        await self._ensure_routes()

    # -- status_page.Shown ---------------------------------------------------------------------------

    def not_ready(self) -> str | None:
        if self.broken.is_set():
            return "broken"
        if self.draining:
            return "draining"
        if not self._serving:
            return "starting"
        return self.services.inbox.error or self.services.rooms.error

    def metrics(self) -> str:
        return render(self.services.counters, self._gauges())

    def _gauges(self) -> Mapping[str, float]:
        of = self.services
        boards = (of.inbox.board, of.rooms.board)
        return {
            "connections": len(self.doors.connections),
            "users": len(of.users),
            "asks_waiting": len(of.asks),
            "commands_waiting": of.writer.pending,
            "inbox_partitions": len(list(of.inbox.board.partitions())),
            "room_partitions": len(list(of.rooms.board.partitions())),
            "outlets_behind": sum(board.behind_count() for board in boards),
            "spills": sum(board.spills for board in boards),
            "gateways": len(self._coordination.gateways),
            "draining": int(self.draining),
        }

    def status(self) -> Mapping[str, Any]:
        return {
            "gateway": self.name,
            "tcp": self.address,
            "slot": self._coordination.slot,
            "gateways": {name: node.tcp for name, node in self._coordination.gateways.items()},
            "routes": dict(self._coordination.routes.topics),
            **self._gauges(),
        }


async def _patiently(step: Callable[[], Awaitable[object]]) -> None:
    """A log that is slow to answer while everything starts at once is given time."""
    deadline_s = time.monotonic() + START_SECONDS_MAX
    while True:
        try:
            await step()
            return
        except LogError as error:
            if time.monotonic() >= deadline_s:
                raise
            logger.warning("trying again: %s", error)
        await asyncio.sleep(START_RETRY_SECONDS)


def _tls(config: GatewayConfig) -> ssl.SSLContext | None:
    if not config.tls_certificate:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(config.tls_certificate, config.tls_key or None)
    except (OSError, ssl.SSLError) as error:
        raise InvalidConfig(f"tls.certificate: {error}") from None
    return context
