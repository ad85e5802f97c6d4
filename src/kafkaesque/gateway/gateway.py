"""A gateway: creates its parts, starts and stops them in order."""

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
from typing import Any, cast

from kafkaesque.client.ports import Log, LogError
from kafkaesque.edge.protocol.codes import CloseCode
from kafkaesque.edge.protocol.messages import GoAway
from kafkaesque.events.gateway import (
    GATEWAY_TOPICS,
    INBOX,
    ROOMS,
    Presence,
    Reply,
    Revocation,
    command_topic,
)
from kafkaesque.gateway.authentication import Authenticator
from kafkaesque.gateway.backend import PENDING_MAX, BackendClient, PendingReplies
from kafkaesque.gateway.batching_writer import BatchingWriter
from kafkaesque.gateway.client_connection import ClientConnection
from kafkaesque.gateway.config import GatewayConfig
from kafkaesque.gateway.connection_registry import ConnectionRegistry
from kafkaesque.gateway.control_reader import ControlReader
from kafkaesque.gateway.coordination import GatewayCoordination
from kafkaesque.gateway.counters import Counters, render
from kafkaesque.gateway.handover_state import ConnectionState, describe
from kafkaesque.gateway.keys import TokenVerifier, load_key, load_secret
from kafkaesque.gateway.message_handler import MessageHandler
from kafkaesque.gateway.passwords import Passwords
from kafkaesque.gateway.presence import PresenceWriter
from kafkaesque.gateway.rules.draining import waves
from kafkaesque.gateway.rules.session import SessionStage
from kafkaesque.gateway.rules.tokens import Tokens, TrustedIssuer
from kafkaesque.gateway.rules.users import Users
from kafkaesque.gateway.subscriptions import Subscriptions
from kafkaesque.gateway.topic_reader import TopicReader
from kafkaesque.model.clock import Clock
from kafkaesque.model.errors import InvalidConfig, check

logger = logging.getLogger(__name__)

START_SECONDS_MAX = 60.0
START_RETRY_SECONDS = 0.2
CLOSE_SECONDS = 0.5
"""How long clients have to close after they were notified that the gateway stops."""
TICK_SECONDS_MAX = 1.0
TICK_SECONDS_MIN = 0.05
OWN_KEY_NAME = "gateway.key"


class Gateway:
    """Runs on the current event loop from `prepare` to `stop`."""

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
        self.clock = clock
        self._log = log
        self.counters = Counters()
        self.users = Users(config.send_rate, config.send_burst, config.connections_per_user_max)
        self.tokens = _tokens(config, data)
        self._verifier = TokenVerifier(self.tokens, config.jwt_jwks, clock)
        self._passwords = Passwords(cheap=cheap_passwords)
        self.coordination = GatewayCoordination(
            name, config.zookeeper_connect, self._gateways_changed, self._ensure_routes
        )
        self._writer = BatchingWriter(log)
        self._presence = PresenceWriter(name, self.users, self._writer)
        # Random: replies to a previous process of this name must not be taken for ours.
        process = f"{name}-{random.getrandbits(32):08x}"
        pending = PendingReplies(process, config.ask_timeout_ms / 1000, PENDING_MAX)
        self._backend = BackendClient(
            name, pending, self._writer, self.coordination, clock, self.counters
        )
        linger_s = config.interest_linger_ms / 1000
        self.inbox = TopicReader(
            log, INBOX.name, self.counters, clock, rooms=False, linger_s=linger_s
        )
        self.rooms = TopicReader(
            log, ROOMS.name, self.counters, clock, rooms=True, linger_s=linger_s
        )
        self._subscriptions = Subscriptions(self.inbox, self.rooms, self.counters)
        authenticator = Authenticator(
            self.tokens,
            self._verifier,
            self._passwords if config.passwords else None,
            self._backend,
            self._writer,
            clock,
        )
        handler = MessageHandler(
            config,
            clock,
            self.counters,
            users=self.users,
            presence=self._presence,
            coordination=self.coordination,
            authenticator=authenticator,
            backend=self._backend,
            subscriptions=self._subscriptions,
        )
        self.connections = ConnectionRegistry(config, clock, self.counters, handler)
        self._control = ControlReader(log, name, self)
        self._ticking: asyncio.Task[None] | None = None
        self._server: asyncio.Server | None = None
        self.listener: socket.socket | None = None
        self.draining = False
        self.broken = asyncio.Event()
        self._serving = False

    # -- start and stop ------------------------------------------------------------------------------

    async def prepare(self) -> None:
        """Starts everything except accepting clients."""
        await self.coordination.start()
        await _patiently(lambda: self._log.admin.ensure_topics(GATEWAY_TOPICS))
        await _patiently(self._ensure_routes)
        await self._verifier.start()
        await self._writer.start()
        await _patiently(self.inbox.start)
        await _patiently(self.rooms.start)
        await _patiently(lambda: self._control.start(self.coordination.slot))
        self._presence.start()
        self._ticking = asyncio.create_task(self._tick())
        parts = (self._writer, self.inbox, self.rooms, self._control, self._presence)
        for task in (self._ticking, *(part.task for part in parts)):
            if task is not None:
                task.add_done_callback(self._part_ended)

    def _part_ended(self, task: asyncio.Task[None]) -> None:
        """A part that ends by itself has a bug, and the process must not run without it."""
        if not task.cancelled() and task.exception() is not None:
            logger.critical("a part of the gateway failed", exc_info=task.exception())
            self.broken.set()

    async def _ensure_routes(self) -> None:
        """Creates the command topics: back ends of a new version may not have started yet."""
        routes = self.coordination.routes
        await self._log.admin.ensure_topics(
            dataclasses.replace(command_topic(version), name=topic)
            for version, topic in routes.topics.items()
        )

    async def _tick(self) -> None:
        config = self.config
        shortest_ms = min(
            config.heartbeat_ms,
            config.auth_timeout_ms,
            config.slow_timeout_ms,
            config.ask_timeout_ms,
        )
        pause_s = min(TICK_SECONDS_MAX, max(TICK_SECONDS_MIN, shortest_ms / 10_000))
        while True:
            await asyncio.sleep(pause_s)
            self._backend.expire()
            self.tokens.forget_expired(self.clock.wall_ms())
            self.connections.close_overdue()

    async def listen(self, host: str, port: int) -> str:
        """Accepts clients. Returns the address."""
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listener = socket.create_server(
            (host, port), family=family, backlog=self.config.listen_backlog
        )
        return await self.serve(listener)

    async def serve(self, listener: socket.socket) -> str:
        """Accepts clients on a socket that already listens. Returns the address."""
        listener.setblocking(False)
        self.listener = listener
        await self._accept()
        await self.coordination.announce(self.config.advertised_listener or self.address)
        self._serving = True
        return self.address

    async def _accept(self) -> None:
        context = _tls(self.config)
        if self.listener is not None:
            self._server = await asyncio.get_running_loop().create_server(
                self.connections.new_connection,
                # A copy, since the server closes it; the listener may be handed over.
                sock=self.listener.dup(),
                ssl=context,
                backlog=self.config.listen_backlog,
            )

    # -- handover ------------------------------------------------------------------------------------

    async def freeze(self, settle_s: float) -> socket.socket:
        """Stops reading from clients and accepting new ones; what they send waits in the kernel. Then
        waits for writes in flight and ends all requests. Returns the listening socket."""
        listener = self.listener
        check(listener is not None, "only a serving gateway is handed over")
        self.draining = True
        self._stop_listening()
        self.connections.freeze(frozen=True)
        await self._writer.settle(settle_s)
        self._backend.expire_all()
        return cast(socket.socket, listener)

    async def thaw(self) -> None:
        """The handover failed: continues to serve."""
        if self._server is not None:
            return
        self.connections.freeze(frozen=False)
        await self._accept()
        self.draining = False

    def connection_state(self, connection: ClientConnection) -> ConnectionState | None:
        """Returns None if the connection cannot be handed over at this moment."""
        return describe(connection, self.inbox.fan_out, self.rooms.fan_out)

    @property
    def address(self) -> str:
        if self.listener is None:
            return ""
        host, port = self.listener.getsockname()[:2]
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

    async def drain(self) -> None:
        """Sends all clients to other gateways: first readiness is turned off, then clients go in batches."""
        self.draining = True
        config = self.config
        await self.coordination.announce(config.advertised_listener or self.address, draining=True)
        await asyncio.sleep(config.drain_settle_ms / 1000)
        self._stop_listening()
        clients = list(self.connections)
        for wave in waves(clients, config.drain_batch, config.drain_interval_ms, random.random):
            for client, after_ms in wave.clients:
                self._send_away(client, after_ms)
            await asyncio.sleep(wave.wait_ms / 1000)
        await self.connections.wait_empty(config.drain_grace_ms / 1000)
        self.connections.close_all(CloseCode.GOING_AWAY, "this gateway stops")

    def _send_away(self, client: ClientConnection, after_ms: int) -> None:
        if client.session.user is None or client.session.stage is SessionStage.CLOSED:
            client.close(CloseCode.GOING_AWAY, "this gateway stops")
            return
        partition = self._subscriptions.inbox_partition(client.session.user.name)
        client.send(GoAway(after_ms, self.coordination.targets(partition, without_self=True)))
        self.counters.drained += 1

    def _stop_listening(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None

    async def stop(self, *, handed_over: bool = False) -> None:
        """Stops everything; records that wait are written first. `handed_over`: another process continues
        as this gateway, so no user has left."""
        self._serving = False
        self._stop_listening()
        if not handed_over:
            self.connections.close_all(CloseCode.GOING_AWAY, "this gateway stops")
            await self.connections.wait_empty(CLOSE_SECONDS)
            self.connections.abort_all()
        if self._ticking is not None:
            self._ticking.cancel()
            await asyncio.gather(self._ticking, return_exceptions=True)
        await self._presence.stop(flush=not handed_over)
        await asyncio.gather(self.inbox.stop(), self.rooms.stop(), self._control.stop())
        await self._writer.stop()
        self._passwords.close()
        if self.listener is not None:
            self.listener.close()
        await self.coordination.stop()
        await self._log.close()

    # -- control_reader.ControlReceiver --------------------------------------------------------------

    def replied(self, correlation: str, reply: Reply) -> None:
        self._backend.replied(correlation, reply)

    def revoked(self, token_id: str, revocation: Revocation) -> None:
        self.tokens.revoke(token_id, revocation.until_ms, self.clock.wall_ms())
        self.connections.close_token(token_id)

    def present(self, user: str, presence: Presence | None) -> None:
        self._presence.read(user, presence)

    def _gateways_changed(self) -> None:
        self._presence.gateways_changed(self.coordination.gateways)

    # -- service.status_page.StatusSource ------------------------------------------------------------------

    def not_ready(self) -> str | None:
        if self.broken.is_set():
            return "broken"
        if self.draining:
            return "draining"
        if not self._serving:
            return "starting"
        return self.inbox.error or self.rooms.error

    def metrics(self) -> str:
        return render(self.counters, self._gauges())

    def _gauges(self) -> Mapping[str, float]:
        fan_outs = (self.inbox.fan_out, self.rooms.fan_out)
        return {
            "connections": len(self.connections),
            "users": len(self.users),
            "asks_waiting": self._backend.pending_count,
            "commands_waiting": self._writer.pending,
            "inbox_partitions": len(list(self.inbox.fan_out.partitions())),
            "room_partitions": len(list(self.rooms.fan_out.partitions())),
            "outlets_behind": sum(one.behind_count() for one in fan_outs),
            "spills": sum(one.spills for one in fan_outs),
            "gateways": len(self.coordination.gateways),
            "draining": int(self.draining),
        }

    def status(self) -> Mapping[str, Any]:
        return {
            "gateway": self.name,
            "tcp": self.address,
            "slot": self.coordination.slot,
            "gateways": {name: node.tcp for name, node in self.coordination.gateways.items()},
            "routes": dict(self.coordination.routes.topics),
            **self._gauges(),
        }


async def _patiently(step: Callable[[], Awaitable[object]]) -> None:
    """Retries while the log is slow to answer because everything starts at once."""
    deadline_s = time.monotonic() + START_SECONDS_MAX
    while True:
        try:
            await step()
            return
        except LogError as error:
            if time.monotonic() >= deadline_s:
                raise
            logger.warning("start-up step failed, retrying: %s", error)
        await asyncio.sleep(START_RETRY_SECONDS)


def _tokens(config: GatewayConfig, data: Path) -> Tokens:
    secret = load_secret(Path(config.secret_file) if config.secret_file else data / OWN_KEY_NAME)
    trusted = TrustedIssuer(
        config.jwt_algorithms,
        load_key(config.jwt_key) if config.jwt_key else "",
        config.jwt_audience,
        config.jwt_issuer,
    )
    return Tokens(secret, trusted, config.token_ttl_ms)


def _tls(config: GatewayConfig) -> ssl.SSLContext | None:
    if not config.tls_certificate:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(config.tls_certificate, config.tls_key or None)
    except (OSError, ssl.SSLError) as error:
        raise InvalidConfig(f"tls.certificate: {error}") from None
    return context
