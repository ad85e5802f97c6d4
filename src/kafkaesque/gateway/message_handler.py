"""Handles each message of a client."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from typing import Any

from kafkaesque.client.ports import LogError
from kafkaesque.edge.protocol.codec import body_to_json
from kafkaesque.edge.protocol.codes import CloseCode, ErrorCode, Violation
from kafkaesque.edge.protocol.messages import (
    Ack,
    Ask,
    Auth,
    Credit,
    Hello,
    Logout,
    Message,
    Ping,
    Pong,
    Resume,
    Send,
    Sub,
    Unsub,
    Welcome,
)
from kafkaesque.edge.protocol.positions import EARLIEST, Position, parse_position
from kafkaesque.events.envelope import MalformedEvent
from kafkaesque.events.gateway import (
    ANONYMOUS_OPS,
    SUBSCRIBE_OP,
    Command,
    Reply,
    raw,
)
from kafkaesque.gateway.authentication import Authenticator, LoggedIn, LoginFailed
from kafkaesque.gateway.backend import BackendClient
from kafkaesque.gateway.client_connection import ClientConnection
from kafkaesque.gateway.config import GatewayConfig
from kafkaesque.gateway.coordination import GatewayCoordination
from kafkaesque.gateway.counters import Counters
from kafkaesque.gateway.handover_state import ConnectionState
from kafkaesque.gateway.presence import PresenceWriter
from kafkaesque.gateway.rules.fan_out import StartFrom
from kafkaesque.gateway.rules.session import SessionStage
from kafkaesque.gateway.rules.tokens import TokenIdentity, usable_names
from kafkaesque.gateway.rules.users import Users
from kafkaesque.gateway.subscriptions import Subscriptions
from kafkaesque.model.clock import Clock

LOGIN_ATTEMPTS_MAX = 5
CREDIT_MAX = 1_000_000

Step = Coroutine[Any, Any, None]


class MessageHandler:
    """Implements `client_connection.MessageReceiver`. All state of a client is in its session."""

    def __init__(
        self,
        config: GatewayConfig,
        clock: Clock,
        counters: Counters,
        *,
        users: Users,
        presence: PresenceWriter,
        coordination: GatewayCoordination,
        authenticator: Authenticator,
        backend: BackendClient,
        subscriptions: Subscriptions,
    ) -> None:
        self._config = config
        self._clock = clock
        self._counters = counters
        self._users = users
        self._presence = presence
        self._coordination = coordination
        self._authenticator = authenticator
        self._backend = backend
        self._subscriptions = subscriptions
        self._handlers: Mapping[type[Message], Callable[[ClientConnection, Any], Step | None]] = {
            Hello: self._hello,
            Auth: self._auth,
            Resume: self._resume,
            Ping: self._ping,
            Send: self._send,
            Ask: self._ask,
            Sub: self._sub,
            Unsub: self._unsub,
            Credit: self._credit,
            Logout: self._logout,
        }

    def handle(self, connection: ClientConnection, message: Message) -> Step | None:
        return self._handlers[type(message)](connection, message)

    def writable_again(self, connection: ClientConnection) -> None:
        self._subscriptions.unblock(connection)

    # -- login ---------------------------------------------------------------------------------------

    def _hello(self, connection: ClientConnection, hello: Hello) -> None:
        session = connection.session
        if hello.credit is not None and not 0 <= hello.credit <= CREDIT_MAX:
            raise Violation(CloseCode.BAD_FRAME, f"a credit of {hello.credit}")
        session.app_version, session.client = hello.app_version[:64], hello.client[:64]
        session.credit = hello.credit
        session.stage = SessionStage.GREETED

    async def _auth(self, connection: ClientConnection, auth: Auth) -> None:
        session = connection.session
        try:
            login = await self._authenticator.authenticate(
                auth, session.app_version, session.address
            )
        except LoginFailed as failure:
            session.attempts += 1
            if session.attempts >= LOGIN_ATTEMPTS_MAX:
                raise Violation(CloseCode.AUTH_FAILED, "too many attempts") from None
            connection.send_error(failure.code, str(failure))
            return
        if connection.closed:
            return
        if session.user is not None and session.user.name != login.identity.user:
            text = "this connection belongs to another user"
            connection.send_error(ErrorCode.USER_MISMATCH, text)
            return
        if session.user is None:
            self._log_in(connection, login.identity)
        session.identity = login.identity
        self._welcome(connection, login)

    def _log_in(self, connection: ClientConnection, identity: TokenIdentity) -> None:
        clock, session = self._clock, connection.session
        user = self._users.connect(identity.user, clock.monotonic(), clock.wall_ms())
        if user is None:
            raise Violation(CloseCode.TOO_MANY, "this user has too many connections")
        session.user = user
        session.stage = SessionStage.READY
        if connection.wire is not None:
            connection.wire.allow(self._config.frame_max_bytes)
        self._counters.welcomed += 1
        self._presence.changed(user.name)

    def _welcome(self, connection: ClientConnection, login: LoggedIn) -> None:
        identity = login.identity
        partition = self._subscriptions.inbox_partition(identity.user)
        connection.send(
            Welcome(
                user=identity.user,
                session=connection.session.id,
                gateway=self._coordination.name,
                heartbeat_ms=self._config.heartbeat_ms,
                expires_ms=identity.expires_ms,
                token=login.token,
                targets=self._coordination.targets(partition, without_self=False),
                frame_max_bytes=self._config.frame_max_bytes,
            )
        )

    def _logout(self, connection: ClientConnection, _: Logout) -> None:
        identity = connection.session.identity
        if identity is not None:
            self._authenticator.revoke(identity)
        connection.close(CloseCode.LOGGED_OUT, "logged out")

    # -- connection ----------------------------------------------------------------------------------

    def disconnected(self, connection: ClientConnection) -> None:
        self.detach(connection)
        if connection.session.user is not None:
            self._presence.changed(connection.session.user.name)

    def detach(self, connection: ClientConnection) -> None:
        """This process no longer serves the connection; another one may, so presence stays."""
        self._subscriptions.leave_all(connection)
        if connection.session.user is not None:
            self._users.disconnect(connection.session.user)

    async def restore(self, connection: ClientConnection, state: ConnectionState) -> None:
        """Continues a connection of the previous process."""
        clock, session = self._clock, connection.session
        if state.user is None:
            return
        session.user = self._users.connect(state.user, clock.monotonic(), clock.wall_ms())
        if session.user is None:
            connection.close(CloseCode.TOO_MANY, "this user has too many connections")
            return
        for subscriber in state.outlets:
            await self._subscriptions.restore(connection, subscriber)

    def _ping(self, connection: ClientConnection, ping: Ping) -> None:
        connection.send(Pong(ping.t, self._subscriptions.inbox_position(connection)))

    def _credit(self, connection: ClientConnection, credit: Credit) -> None:
        session = connection.session
        held = session.credit or 0
        if not 0 < credit.events <= CREDIT_MAX or held + credit.events > CREDIT_MAX:
            raise Violation(CloseCode.BAD_FRAME, f"a credit of {credit.events}")
        session.credit = held + credit.events
        if held == 0:
            self._subscriptions.unblock(connection)

    # -- commands and requests -----------------------------------------------------------------------

    def _send(self, connection: ClientConnection, send: Send) -> None:
        session = connection.session
        if not self._admit(connection, send.id, send.op):
            return

        def written(failure: LogError | None) -> None:
            session.in_flight -= 1
            if failure is None:
                connection.send(Ack(send.id))
            else:
                self._counters.command_failures += 1
                connection.send_error(ErrorCode.UNAVAILABLE, str(failure), send.id)

        command, user = _command(connection, send), session.require_user().name
        session.in_flight += 1
        try:
            accepted = self._backend.send(user, command, send.id, session.app_version, written)
        except MalformedEvent as error:
            raise Violation(CloseCode.TOO_LARGE, str(error)) from None
        if not accepted:
            session.in_flight -= 1
            connection.send_error(ErrorCode.BUSY, "too many commands wait", send.id)

    def _ask(self, connection: ClientConnection, ask: Ask) -> None:
        session = connection.session
        if not self._admit(connection, ask.id, ask.op):
            return

        def on_reply(reply: Reply | None) -> None:
            session.in_flight -= 1
            if reply is None:
                self._counters.ask_timeouts += 1
                text = "no back end answered in time"
                connection.send_error(ErrorCode.TIMEOUT, text, ask.id)
            else:
                connection.send_answer(ask.id, reply)

        command, user = _command(connection, ask), session.require_user().name
        session.in_flight += 1
        try:
            accepted = self._backend.request(user, command, ask.id, session.app_version, on_reply)
        except MalformedEvent as error:
            raise Violation(CloseCode.TOO_LARGE, str(error)) from None
        if not accepted:
            session.in_flight -= 1
            connection.send_error(ErrorCode.BUSY, "too many requests wait", ask.id)

    def _admit(self, connection: ClientConnection, request_id: str, op: str) -> bool:
        """Checks limits and permissions. Returns False if the client was sent an error."""
        session = connection.session
        if not usable_names([request_id, op]):
            raise Violation(CloseCode.BAD_FRAME, "an id or operation that is empty or too long")
        if op in ANONYMOUS_OPS:
            text = f"{op} is not for clients"
            connection.send_error(ErrorCode.FORBIDDEN_OP, text, request_id)
            return False
        if not self._backend.serves(session.app_version):
            text = f"no back ends serve version {session.app_version!r}"
            connection.send_error(ErrorCode.UNKNOWN_VERSION, text, request_id)
            return False
        wait_s = session.require_user().bucket.take(self._clock.monotonic())
        if wait_s > 0:
            self._counters.rate_limited += 1
            wait_ms = int(wait_s * 1000) + 1
            connection.send_error(ErrorCode.RATE_LIMITED, "slow down", request_id, wait_ms)
            return False
        if session.in_flight >= self._config.in_flight_max:
            connection.send_error(ErrorCode.BUSY, "too many requests in flight", request_id)
            return False
        return True

    # -- events --------------------------------------------------------------------------------------

    async def _resume(self, connection: ClientConnection, resume: Resume) -> None:
        await self._subscriptions.resume(connection, _start_at(resume.position))

    async def _sub(self, connection: ClientConnection, sub: Sub) -> None:
        session = connection.session
        if not usable_names([sub.room]):
            raise Violation(CloseCode.BAD_FRAME, "a room without a usable name")
        start_at = _start_at(sub.position)
        if not self._admit(connection, sub.id, SUBSCRIBE_OP):
            return
        if sub.room not in session.rooms and len(session.rooms) >= self._config.subscriptions_max:
            text = f"the limit is {len(session.rooms)} rooms"
            connection.send_error(ErrorCode.TOO_MANY_SUBSCRIPTIONS, text, sub.id)
            return
        user, body = session.require_user().name, {"room": sub.room}
        reply = await self._backend.call(user, SUBSCRIBE_OP, body, session.app_version)
        if connection.closed:
            return
        if reply is None:
            connection.send_error(ErrorCode.TIMEOUT, "no back end answered in time", sub.id)
        elif not reply.ok:
            connection.send_answer(sub.id, reply)
        else:
            await self._subscriptions.join_room(connection, sub.room, sub.id, start_at)

    def _unsub(self, connection: ClientConnection, unsub: Unsub) -> None:
        self._subscriptions.leave_room(connection, unsub.room)
        connection.send_answer(unsub.id, Reply(ok=True, body=raw({})))


def _start_at(position: str | None) -> Position | StartFrom:
    if position is None:
        return StartFrom.NOW
    return StartFrom.EARLIEST if position == EARLIEST else parse_position(position)


def _command(connection: ClientConnection, message: Send | Ask) -> Command:
    if connection.wire is None:
        raise Violation(CloseCode.BAD_STATE, "a command before the handshake")
    return Command(message.op, body_to_json(message.body, connection.wire.encoding))
