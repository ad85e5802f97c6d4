"""The client library: one persistent session of a user, over changing connections to gateways.

    async with EdgeClient(["127.0.0.1:7000"], Credentials(token=token)) as client:
        await client.send("message.send", {"to": "bob", "text": "hello"})
        async for event in client.events():
            ...

It reconnects, resumes after the last received event, and repeats unacknowledged commands. `send` returns
when the command is in the log; its result is an event whose `re` is the command's id. `client_state` holds
the rules; this module does the I/O.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import secrets
import ssl
import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import msgspec

from kafkaesque.edge.client_state import Addresses, ClientState, Credentials, backoff_s
from kafkaesque.edge.client_transport import (
    ClientTransport,
    TransportClosed,
    closed_by,
    open_transport,
)
from kafkaesque.edge.protocol.codec import Encoding
from kafkaesque.edge.protocol.codes import CloseCode
from kafkaesque.edge.protocol.messages import (
    Ack,
    Answer,
    Ask,
    Auth,
    Bye,
    Credit,
    Error,
    Event,
    GoAway,
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

logger = logging.getLogger(__name__)

QUEUE_EVENTS_MAX = 1000
RETRY_SECONDS = 0.25
REFRESH_SHARE = 0.8
"""Fraction of a token's lifetime after which the client requests a new one."""


class RequestFailed(Exception):
    """The gateway or the back end rejected the request; repeating it does not help."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(f"{code}: {text}")
        self.code = code


class ClientClosed(Exception):
    """The gateway closed the session for good; `code` is its CloseCode."""

    def __init__(self, text: str, code: int) -> None:
        super().__init__(text)
        self.code = code


@dataclass(frozen=True, slots=True)
class Happening:
    """An event. A client that is given its `position`, in any process, resumes after it."""

    position: str
    type: str
    body: Any
    re: str | None
    at_ms: int
    room: str | None = None


@dataclass(frozen=True, slots=True)
class SnapshotNeeded:
    """Missed events are no longer in the log: reload the state. Later events follow."""

    reason: str
    room: str | None = None


@dataclass(slots=True)
class Counts:
    """Statistics of a client, for benchmarks and fault runs."""

    connects: int = 0
    disconnects: int = 0
    resumed: int = 0
    replayed: int = 0
    repeated: int = 0
    resume_s: list[float] = field(default_factory=list)
    """Seconds from losing the connection until events were live again, for each reconnect."""
    lost_s: float | None = None


class EdgeClient:
    """One user's session. Use as a context manager, or `start` and `close`."""

    def __init__(
        self,
        addresses: Sequence[str],
        credentials: Credentials,
        *,
        app_version: str = "",
        position: str | None = None,
        encoding: Encoding = Encoding.JSON,
        tls: ssl.SSLContext | None = None,
        on_state: Callable[[str], None] | None = None,
    ) -> None:
        self.addresses = Addresses(addresses)
        self._encoding = encoding
        self._tls = tls
        self._on_state = on_state
        self._state = ClientState(credentials, app_version, position, secrets.token_hex(6))
        self._events: asyncio.Queue[Happening | SnapshotNeeded | None] = asyncio.Queue()
        self._taken = 0
        self._waiting: dict[str, asyncio.Future[Any]] = {}
        self._transport: ClientTransport | None = None
        self._task: asyncio.Task[None] | None = None
        self._first: asyncio.Future[None] | None = None
        self._leave_s: float | None = None
        self.welcome: Welcome | None = None
        self.counts = Counts()

    # -- start and stop ------------------------------------------------------------------------------

    async def start(self) -> None:
        """Returns when events are live. Raises ClientClosed or RequestFailed if the gateway refuses."""
        loop = asyncio.get_running_loop()
        self._first = loop.create_future()
        self._task = loop.create_task(self._run())
        await asyncio.shield(self._first)

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        transport, self._transport = self._transport, None
        if transport is not None:
            await transport.close()
        self._end(ClientClosed("closed by its owner", 0))

    async def logout(self) -> None:
        """Revokes the token on all gateways, then closes."""
        with contextlib.suppress(TransportClosed):
            await self._send([Logout()])
            await asyncio.wait([self._task] if self._task is not None else [], timeout=5)
        await self.close()

    async def __aenter__(self) -> Self:
        try:
            await self.start()
        except BaseException:
            # `__aexit__` is not called after a failed `__aenter__`, so clean up here.
            await self.close()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @property
    def position(self) -> str | None:
        return self._state.position

    @property
    def token(self) -> str | None:
        return self._state.token

    @property
    def user(self) -> str:
        return self.welcome.user if self.welcome is not None else ""

    # -- requests ------------------------------------------------------------------------------------

    async def send(self, op: str, body: Any = None, *, id: str | None = None) -> str:
        """Returns the command's id when it is in the log. Raises RequestFailed if it is rejected."""
        data = self._raw(body)
        request = self._state.request(lambda new: Send(id or new, op, data))
        await self._await_answer(request)
        return request.id

    async def ask(self, op: str, body: Any = None, *, timeout_s: float = 30.0) -> Any:
        """Returns the answer's body. Raises RequestFailed with the back end's code, or TimeoutError."""
        data = self._raw(body)
        request = self._state.request(lambda new: Ask(new, op, data))
        async with asyncio.timeout(timeout_s):
            return await self._await_answer(request)

    async def subscribe(self, room: str, position: str | None = None) -> None:
        """Subscribes to the events of `room`, from `position` or from now on, across reconnects."""
        answer = await self._await_answer(self._state.request(lambda new: Sub(new, room, position)))
        self._state.rooms.setdefault(room, answer["position"])

    async def unsubscribe(self, room: str) -> None:
        self._state.rooms.pop(room, None)
        await self._await_answer(self._state.request(lambda new: Unsub(new, room)))

    async def events(self) -> AsyncIterator[Happening | SnapshotNeeded]:
        """All events, in order, each once. Ends when the client is closed."""
        while (event := await self._events.get()) is not None:
            self._taken += 1
            if self._taken >= QUEUE_EVENTS_MAX // 2:
                taken, self._taken = self._taken, 0
                with contextlib.suppress(TransportClosed):
                    await self._send([Credit(taken)])
            yield event

    def _raw(self, body: Any) -> msgspec.Raw:
        value = {} if body is None else body
        if self._encoding is Encoding.JSON:
            return msgspec.Raw(msgspec.json.encode(value))
        return msgspec.Raw(msgspec.msgpack.encode(value))

    async def _await_answer(self, request: Send | Ask | Sub | Unsub) -> Any:
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting[request.id] = answer
        try:
            # Without a connection it is sent after the next WELCOME.
            if self.welcome is not None:
                with contextlib.suppress(TransportClosed):
                    await self._send([request])
            return await answer
        finally:
            self._waiting.pop(request.id, None)
            self._state.done(request.id)

    async def _send(self, messages: Sequence[Message]) -> None:
        if self._transport is None:
            raise TransportClosed("not connected")
        await self._transport.send(messages)

    # -- the connection ------------------------------------------------------------------------------

    async def _run(self) -> None:
        failures = 0
        try:
            while True:
                try:
                    await self._connect_and_listen()
                except TransportClosed as closed:
                    failures = 0 if self.welcome is not None else failures + 1
                    await self._disconnected(closed)
                    if not closed.reconnect and not self._may_retry(closed):
                        raise ClientClosed(str(closed), closed.code) from None
                await asyncio.sleep(backoff_s(failures, random.random()))  # noqa: S311
        except (ClientClosed, RequestFailed) as ended:
            self._end(ended)
        except Exception as error:
            # A bug here must not leave callers waiting for answers forever.
            logger.exception("the client failed")
            self._end(ClientClosed(f"the client failed: {error!r}", 0))

    def _may_retry(self, closed: TransportClosed) -> bool:
        return closed.code == CloseCode.AUTH_FAILED and self._state.refused()

    async def _disconnected(self, closed: TransportClosed) -> None:
        logger.debug("disconnected: %s", closed)
        if self.welcome is not None:
            self.counts.disconnects += 1
            self.counts.lost_s = time.monotonic()
        self.welcome = None
        transport, self._transport = self._transport, None
        self._report_state("disconnected")
        if transport is not None:
            await transport.close()

    async def _connect_and_listen(self) -> None:
        self._report_state("connecting")
        self._leave_s = None
        transport = await open_transport(self.addresses.next(), self._encoding, self._tls)
        self._transport = transport
        self.counts.connects += 1
        self._taken = 0
        credit = max(1, QUEUE_EVENTS_MAX - self._events.qsize())
        await transport.send(self._state.opening("kafkaesque-python", credit))
        heartbeat: asyncio.Task[None] | None = None
        try:
            while True:
                for message in await self._receive(transport):
                    if isinstance(message, Welcome) and heartbeat is None:
                        heartbeat = asyncio.create_task(self._keep_alive(message, transport))
                    await self._handle(message)
        finally:
            if heartbeat is not None:
                heartbeat.cancel()
                await asyncio.gather(heartbeat, return_exceptions=True)

    async def _receive(self, transport: ClientTransport) -> Sequence[Message]:
        """Raises TransportClosed if the gateway did not answer a heartbeat, or at its GOAWAY deadline."""
        silence_s = 30.0 if self.welcome is None else self.welcome.heartbeat_ms * 2.5 / 1000
        if self._leave_s is not None:
            silence_s = max(0.0, self._leave_s - time.monotonic())
        try:
            async with asyncio.timeout(silence_s):
                return await transport.receive()
        except TimeoutError:
            raise TransportClosed("no heartbeat from the gateway, or GOAWAY") from None

    async def _keep_alive(self, welcome: Welcome, transport: ClientTransport) -> None:
        pause_s = welcome.heartbeat_ms * 0.8 / 1000
        life_ms = welcome.expires_ms - time.time_ns() // 1_000_000
        refresh_s = time.monotonic() + life_ms * REFRESH_SHARE / 1000
        while True:
            await asyncio.sleep(min(pause_s, max(0.05, refresh_s - time.monotonic())))
            messages: list[Message] = [Ping(time.time_ns() // 1_000_000)]
            if time.monotonic() >= refresh_s and self._state.token is not None:
                messages.append(Auth(token=self._state.token, refresh=True))
                refresh_s += pause_s
            try:
                await transport.send(messages)
            except TransportClosed:
                return

    # -- messages ------------------------------------------------------------------------------------

    async def _handle(self, message: Message) -> None:
        match message:
            case Event():
                self._handle_event(message)
            case Ack():
                self._settle(message.id, None)
            case Answer():
                self._answered(message)
            case Pong():
                if message.position is not None:
                    self._state.reached(message.position, None)
            case Welcome():
                await self._welcomed(message)
            case Resumed():
                self._resumed(message)
            case InvalidSession():
                await self._invalid(message)
            case Error():
                self._failed(message)
            case GoAway():
                self.addresses.prefer(message.targets)
                self._leave_s = time.monotonic() + message.after_ms / 1000
            case Bye():
                raise closed_by(message)
            case _:
                raise TransportClosed(f"unexpected {type(message).__name__} from a gateway")

    def _handle_event(self, event: Event) -> None:
        self._state.reached(event.position, event.room)
        decode: Any = msgspec.json.decode
        if self._encoding is Encoding.MSGPACK:
            decode = msgspec.msgpack.decode
        self._events.put_nowait(
            Happening(
                event.position, event.type, decode(event.body), event.re, event.at_ms, event.room
            )
        )

    async def _welcomed(self, welcome: Welcome) -> None:
        refreshed = self.welcome is not None
        self.welcome = welcome
        again = self._state.welcomed(welcome.token)
        self._state.registered()
        if refreshed:
            return
        self.counts.repeated += len(again)
        if again:
            await self._send(again)

    def _resumed(self, resumed: Resumed) -> None:
        self._state.reached(resumed.position, None)
        self.counts.resumed += 1
        if self.counts.lost_s is not None:
            self.counts.resume_s.append(time.monotonic() - self.counts.lost_s)
            self.counts.lost_s = None
        self.counts.replayed += resumed.replayed
        self._report_state("connected")
        if self._first is not None and not self._first.done():
            self._first.set_result(None)

    async def _invalid(self, invalid: InvalidSession) -> None:
        self._events.put_nowait(SnapshotNeeded(invalid.reason, invalid.room))
        if invalid.room is None:
            self._state.position = invalid.live
            await self._send([Resume(invalid.live)])
        elif invalid.room in self._state.rooms:
            self._state.rooms[invalid.room] = invalid.live
            await self._send([Sub(self._state.new_id(), invalid.room, invalid.live)])

    def _answered(self, answer: Answer) -> None:
        if answer.ok:
            decode: Any = msgspec.json.decode
            if self._encoding is Encoding.MSGPACK:
                decode = msgspec.msgpack.decode
            self._settle(answer.id, decode(answer.body))
        else:
            self._reject(answer.id, RequestFailed(answer.code or "refused", answer.message or ""))

    def _failed(self, error: Error) -> None:
        if error.id is None:
            # Only the login is a request without an id.
            raise RequestFailed(error.code, error.message)
        request = self._state.waiting(error.id)
        if not error.retry or request is None:
            self._reject(error.id, RequestFailed(error.code, error.message))
            return
        wait_s = max(error.retry_after_ms / 1000, RETRY_SECONDS)
        asyncio.get_running_loop().call_later(wait_s, self._resend, error.id)

    def _resend(self, request_id: str) -> None:
        request, transport = self._state.waiting(request_id), self._transport
        if request is not None and transport is not None and self.welcome is not None:
            task = asyncio.ensure_future(transport.send([request]))
            # A failure means that the connection closed; the request is repeated after the next WELCOME.
            task.add_done_callback(lambda done: done.cancelled() or done.exception())

    def _settle(self, request_id: str, value: Any) -> None:
        self._state.done(request_id)
        answer = self._waiting.get(request_id)
        if answer is not None and not answer.done():
            answer.set_result(value)

    def _reject(self, request_id: str, failure: RequestFailed) -> None:
        self._state.done(request_id)
        answer = self._waiting.get(request_id)
        if answer is not None and not answer.done():
            answer.set_exception(failure)

    def _report_state(self, state: str) -> None:
        if self._on_state is not None:
            self._on_state(state)

    def _end(self, why: Exception) -> None:
        self.welcome = None
        self._report_state("closed")
        if self._first is not None and not self._first.done():
            self._first.set_exception(why)
            # Mark the exception as retrieved: no caller may be waiting in `start`.
            self._first.exception()
        for answer in list(self._waiting.values()):
            if not answer.done():
                answer.set_exception(why)
        self._events.put_nowait(None)
