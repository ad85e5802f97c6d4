"""What a gateway does about each message of a client."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from typing import Any

import msgspec

from kafkaesque.client.ports import LogError, Record
from kafkaesque.edge.protocol.codec import body_from_json, body_to_json
from kafkaesque.edge.protocol.codes import CloseCode, ErrorCode, Violation
from kafkaesque.edge.protocol.messages import (
    Ack,
    Answer,
    Ask,
    Auth,
    Credit,
    Error,
    Hello,
    InvalidSession,
    Logout,
    Message,
    Ping,
    Pong,
    Resume,
    Resumed,
    Send,
    Sub,
    Unsub,
    Welcome,
)
from kafkaesque.edge.protocol.positions import EARLIEST, Position, parse_position
from kafkaesque.events.envelope import MalformedEvent
from kafkaesque.events.gateway import (
    ANONYMOUS_OPS,
    REVOKED,
    SUBSCRIBE_OP,
    Command,
    Reply,
    Revocation,
    encode_value,
    partition_of,
    raw,
)
from kafkaesque.gateway.connection import Connection
from kafkaesque.gateway.feed import Feed
from kafkaesque.gateway.handed import HandedConnection, wanted_of
from kafkaesque.gateway.login import LoggedIn, Login, LoginFailed
from kafkaesque.gateway.questions import Questions
from kafkaesque.gateway.rules.outgoing import Outgoing
from kafkaesque.gateway.rules.outlets import From, Outlet
from kafkaesque.gateway.rules.stages import Stage
from kafkaesque.gateway.rules.tokens import Identity, usable_names
from kafkaesque.gateway.rules.users import User
from kafkaesque.gateway.services import Services

LOGIN_ATTEMPTS_MAX = 5
CREDIT_MAX = 1_000_000

Step = Coroutine[Any, Any, None]


class Dialogue:
    """Stateless but for its services: all that there is to know stands in the connection's session."""

    def __init__(self, services: Services) -> None:
        self._of = services
        self._questions = Questions(services)
        self._login = Login(services, self._questions)
        self._acts: Mapping[type[Message], Callable[[Connection, Any], Step | None]] = {
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

    def heard(self, connection: Connection, message: Message) -> Step | None:
        """See `connection.Host.heard`."""
        return self._acts[type(message)](connection, message)

    # -- who is there --------------------------------------------------------------------------------

    def _hello(self, connection: Connection, hello: Hello) -> None:
        session = connection.session
        if hello.credit is not None and not 0 <= hello.credit <= CREDIT_MAX:
            raise Violation(CloseCode.BAD_FRAME, f"a credit of {hello.credit}")
        session.app_version, session.client = hello.app_version[:64], hello.client[:64]
        session.credit = hello.credit
        session.stage = Stage.GREETED

    async def _auth(self, connection: Connection, auth: Auth) -> None:
        session = connection.session
        try:
            found = await self._login.judge(auth, session.app_version, session.address)
        except LoginFailed as failure:
            session.attempts += 1
            if session.attempts >= LOGIN_ATTEMPTS_MAX:
                raise Violation(CloseCode.AUTH_FAILED, "too many attempts") from None
            connection.send(Error(failure.code.text, failure.code.retry, str(failure)))
            return
        if connection.closed:
            return
        if session.user is not None and session.user.name != found.identity.user:
            code = ErrorCode.USER_MISMATCH
            connection.send(Error(code.text, code.retry, "this connection is of another user"))
            return
        if session.user is None:
            self._enter(connection, found.identity)
        session.identity = found.identity
        self._welcome(connection, found)

    def _enter(self, connection: Connection, identity: Identity) -> None:
        clock, session = self._of.clock, connection.session
        user = self._of.users.connect(identity.user, clock.monotonic(), clock.wall_ms())
        if user is None:
            raise Violation(CloseCode.TOO_MANY, "this user has too many connections")
        session.user = user
        session.stage = Stage.READY
        if connection.wire is not None:
            connection.wire.allow(self._of.config.frame_max_bytes)
        self._of.counters.welcomed += 1
        self._of.presence.changed(user.name)

    def _welcome(self, connection: Connection, found: LoggedIn) -> None:
        identity = found.identity
        partition = partition_of(identity.user, self._of.inbox.partition_count)
        connection.send(
            Welcome(
                user=identity.user,
                session=connection.session.id,
                gateway=self._of.name,
                heartbeat_ms=self._of.config.heartbeat_ms,
                expires_ms=identity.expires_ms,
                token=found.token,
                targets=self._of.peers.targets(partition, without_self=False),
                frame_max_bytes=self._of.config.frame_max_bytes,
            )
        )

    def _logout(self, connection: Connection, _: Logout) -> None:
        identity = connection.session.identity
        if identity is not None and identity.token_id:
            revocation = Revocation(identity.user, identity.expires_ms)
            now_ms = self._of.clock.wall_ms()
            self._of.tokens.revoke(identity.token_id, identity.expires_ms, now_ms)
            key = identity.token_id.encode()
            self._of.writer.submit(
                Record(REVOKED.name, key, encode_value(revocation)), lambda _failure: None
            )
        connection.close(CloseCode.LOGGED_OUT, "logged out")

    # -- events --------------------------------------------------------------------------------------

    async def _resume(self, connection: Connection, resume: Resume) -> None:
        if connection.session.inbox is not None:
            self._of.inbox.leave(connection.session.inbox)
        connection.session.stage = Stage.RESUMING
        await self._join(
            connection, self._of.inbox, self._inbox_outlet(connection, _wanted(resume.position))
        )

    def _inbox_outlet(self, connection: Connection, wanted: Position | From) -> Outlet[Outgoing]:
        session, user, feed = connection.session, _user(connection), self._of.inbox
        partition = partition_of(user.name, feed.partition_count)

        def joined(replayed: int) -> None:
            session.stage = Stage.LIVE
            self._of.counters.resumes += 1
            self._of.counters.events_replayed += replayed
            connection.send(Resumed(replayed, str(feed.board.position_of(outlet))))

        def refused(reason: str) -> None:
            feed.leave(outlet)
            session.inbox = None
            session.stage = Stage.READY
            self._of.counters.resumes_refused += 1
            live = str(feed.board.end_of(partition))
            connection.send(InvalidSession(reason, snapshot=True, live=live))

        outlet: Outlet[Outgoing] = Outlet(
            user.name.encode(), partition, wanted, connection.take, joined, refused
        )
        session.inbox = outlet
        return outlet

    async def adopted(self, connection: Connection, handed: HandedConnection) -> None:
        """A connection that another process had, with all that was going on."""
        clock, session = self._of.clock, connection.session
        if handed.user is None:
            return
        session.user = self._of.users.connect(handed.user, clock.monotonic(), clock.wall_ms())
        if session.user is None:
            connection.close(CloseCode.TOO_MANY, "this user has too many connections")
            return
        for was in handed.outlets:
            wanted = wanted_of(was)
            if was.room is None:
                feed, outlet = self._of.inbox, self._inbox_outlet(connection, wanted)
            else:
                sub = Sub("", was.room)
                feed, outlet = self._of.rooms, self._room_outlet(connection, sub, wanted)
            outlet.announced, outlet.replayed = was.announced, was.replayed
            await self._join(connection, feed, outlet)

    async def _join(self, connection: Connection, feed: Feed, outlet: Outlet[Outgoing]) -> None:
        try:
            await feed.join(outlet)
        except LogError:
            outlet.refused("the log does not answer")
        if connection.closed:
            feed.leave(outlet)

    def _ping(self, connection: Connection, ping: Ping) -> None:
        session = connection.session
        position = None
        if session.inbox is not None and session.stage is Stage.LIVE:
            position = str(self._of.inbox.board.position_of(session.inbox))
        connection.send(Pong(ping.t, position))

    def _credit(self, connection: Connection, credit: Credit) -> None:
        session = connection.session
        held = session.credit or 0
        if not 0 < credit.events <= CREDIT_MAX or held + credit.events > CREDIT_MAX:
            raise Violation(CloseCode.BAD_FRAME, f"a credit of {credit.events}")
        session.credit = held + credit.events
        if held == 0:
            self.drained(connection)

    def drained(self, connection: Connection) -> None:
        """There is room again for what was left in the log."""
        session = connection.session
        if not connection.writable or session.credit == 0:
            return
        if session.inbox is not None:
            self._of.inbox.ready(session.inbox)
        for outlet in session.rooms.values():
            self._of.rooms.ready(outlet)

    def left(self, connection: Connection) -> None:
        """The connection is gone."""
        self.moved(connection)
        if connection.session.user is not None:
            self._of.presence.changed(connection.session.user.name)

    def moved(self, connection: Connection) -> None:
        """Another process has the connection now: its events go there."""
        session = connection.session
        if session.inbox is not None:
            self._of.inbox.leave(session.inbox)
        for outlet in session.rooms.values():
            self._of.rooms.leave(outlet)
        if session.user is not None:
            self._of.users.disconnect(session.user)

    # -- commands and questions ----------------------------------------------------------------------

    def _send(self, connection: Connection, send: Send) -> None:
        session = connection.session
        if not self._may_say(connection, send.id, send.op):
            return

        def written(failure: LogError | None) -> None:
            session.in_flight -= 1
            if failure is None:
                connection.send(Ack(send.id))
            else:
                self._of.counters.command_failures += 1
                _fail(connection, send.id, ErrorCode.UNAVAILABLE, str(failure))

        command = _command(connection, send)
        user = _user(connection).name
        session.in_flight += 1
        if not self._submit(user, command, send.id, session.app_version, written):
            session.in_flight -= 1
            _fail(connection, send.id, ErrorCode.BUSY, "too many commands wait")

    def _submit(
        self, user: str, command: Command, command_id: str, version: str,
        written: Callable[[LogError | None], None],
    ) -> bool:  # fmt: skip
        try:
            return self._questions.send(user, command, command_id, version, written)
        except MalformedEvent as error:
            raise Violation(CloseCode.TOO_LARGE, str(error)) from None

    def _ask(self, connection: Connection, ask: Ask) -> None:
        session = connection.session
        if not self._may_say(connection, ask.id, ask.op):
            return

        def answered(reply: Reply | None) -> None:
            session.in_flight -= 1
            if reply is None:
                self._of.counters.ask_timeouts += 1
                _fail(connection, ask.id, ErrorCode.TIMEOUT, "no back end answered in time")
            else:
                _answer(connection, ask.id, reply)

        command = _command(connection, ask)
        session.in_flight += 1
        user = _user(connection).name
        if not self._questions.ask(user, command, ask.id, session.app_version, answered):
            session.in_flight -= 1
            _fail(connection, ask.id, ErrorCode.BUSY, "too many questions wait")

    def _may_say(self, connection: Connection, request_id: str, op: str) -> bool:
        """False if the client has been told why not."""
        session = connection.session
        if not usable_names([request_id, op]):
            raise Violation(CloseCode.BAD_FRAME, "an id or operation that is empty or too long")
        if op in ANONYMOUS_OPS:
            _fail(connection, request_id, ErrorCode.FORBIDDEN_OP, f"{op} is not for clients")
            return False
        if self._questions.topic_of(session.app_version) is None:
            text = f"no back ends serve version {session.app_version!r}"
            _fail(connection, request_id, ErrorCode.UNKNOWN_VERSION, text)
            return False
        wait_s = _user(connection).bucket.take(self._of.clock.monotonic())
        if wait_s > 0:
            self._of.counters.rate_limited += 1
            wait_ms = int(wait_s * 1000) + 1
            _fail(connection, request_id, ErrorCode.RATE_LIMITED, "slow down", wait_ms)
            return False
        if session.in_flight >= self._of.config.in_flight_max:
            _fail(connection, request_id, ErrorCode.BUSY, "too many requests in flight")
            return False
        return True

    # -- rooms ---------------------------------------------------------------------------------------

    async def _sub(self, connection: Connection, sub: Sub) -> None:
        session = connection.session
        if not usable_names([sub.room]):
            raise Violation(CloseCode.BAD_FRAME, "a room without a usable name")
        wanted = _wanted(sub.position)
        if not self._may_say(connection, sub.id, SUBSCRIBE_OP):
            return
        if (
            sub.room not in session.rooms
            and len(session.rooms) >= self._of.config.subscriptions_max
        ):
            code = ErrorCode.TOO_MANY_SUBSCRIPTIONS
            _fail(connection, sub.id, code, f"{len(session.rooms)} rooms are the most")
            return
        user = _user(connection).name
        reply = await self._questions.inquire(
            user, SUBSCRIBE_OP, {"room": sub.room}, session.app_version
        )
        if connection.closed:
            return
        if reply is None:
            _fail(connection, sub.id, ErrorCode.TIMEOUT, "no back end answered in time")
        elif not reply.ok:
            _answer(connection, sub.id, reply)
        else:
            await self._follow(connection, sub, wanted)

    async def _follow(self, connection: Connection, sub: Sub, wanted: Position | From) -> None:
        rooms = connection.session.rooms
        if sub.room in rooms:
            self._of.rooms.leave(rooms.pop(sub.room))
        await self._join(connection, self._of.rooms, self._room_outlet(connection, sub, wanted))

    def _room_outlet(
        self, connection: Connection, sub: Sub, wanted: Position | From
    ) -> Outlet[Outgoing]:
        rooms, feed = connection.session.rooms, self._of.rooms
        partition = partition_of(sub.room, feed.partition_count)

        def joined(_replayed: int) -> None:
            position = str(feed.board.position_of(outlet))
            _answer(connection, sub.id, Reply(ok=True, body=raw({"position": position})))

        def refused(reason: str) -> None:
            feed.leave(outlet)
            rooms.pop(sub.room, None)
            live = str(feed.board.end_of(partition))
            connection.send(InvalidSession(reason, snapshot=True, live=live, room=sub.room))

        outlet: Outlet[Outgoing] = Outlet(
            sub.room.encode(), partition, wanted, connection.take, joined, refused
        )
        rooms[sub.room] = outlet
        return outlet

    def _unsub(self, connection: Connection, unsub: Unsub) -> None:
        outlet = connection.session.rooms.pop(unsub.room, None)
        if outlet is not None:
            self._of.rooms.leave(outlet)
        _answer(connection, unsub.id, Reply(ok=True, body=raw({})))


def _user(connection: Connection) -> User:
    user = connection.session.user
    if user is None:
        raise Violation(CloseCode.BAD_STATE, "nobody is logged in here")
    return user


def _wanted(position: str | None) -> Position | From:
    if position is None:
        return From.NOW
    return From.EARLIEST if position == EARLIEST else parse_position(position)


def _command(connection: Connection, said: Send | Ask) -> Command:
    if connection.wire is None:
        raise Violation(CloseCode.BAD_STATE, "a command before the wire is known")
    return Command(said.op, body_to_json(said.body, connection.wire.encoding))


def _answer(connection: Connection, request_id: str, reply: Reply) -> None:
    if connection.wire is None:
        return
    body = body_from_json(reply.body, connection.wire.encoding) if reply.ok else msgspec.Raw()
    connection.send(Answer(request_id, reply.ok, body, reply.code, reply.message))


def _fail(
    connection: Connection, request_id: str, code: ErrorCode, text: str, after_ms: int = 0
) -> None:
    connection.send(Error(code.text, code.retry, text, request_id, after_ms))
