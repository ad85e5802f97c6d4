"""One client's socket, TCP or WebSocket: bytes to messages, messages to bytes, and flow control.

A client that does not read is not read from either, since every message of it causes an answer. Events are
refused while the socket is full; they stay in the log (see `rules.fan_out`).
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections import deque
from collections.abc import Coroutine
from typing import Any, Protocol, cast

import msgspec

from kafkaesque.edge.protocol.codec import body_from_json
from kafkaesque.edge.protocol.codes import CloseCode, ErrorCode, Violation
from kafkaesque.edge.protocol.framing import ControlFrame, Framing
from kafkaesque.edge.protocol.messages import Answer, Error, Message
from kafkaesque.events.gateway import Reply
from kafkaesque.gateway.rules.handshake import ConnectionHandshake, HandshakeRules
from kafkaesque.gateway.rules.outgoing import OutgoingEvent
from kafkaesque.gateway.rules.session import EdgeSession, SessionStage, check_allowed

WAITING_MESSAGES_MAX = 32
"""Messages that wait for an earlier one. At the limit, the client is not read from."""
LINGER_SECONDS = 2.0
"""How long the client of a closed connection may take to notice."""


class ConnectionOwner(Protocol):
    """The registry that a connection belongs to."""

    @property
    def handshake_rules(self) -> HandshakeRules: ...

    @property
    def write_buffer_bytes(self) -> int: ...

    def now_s(self) -> float: ...

    def opened(self, connection: ClientConnection) -> CloseCode | None:
        """Returns a code if the connection must be closed at once."""
        ...

    def closed(self, connection: ClientConnection, code: CloseCode | None) -> None: ...


class MessageReceiver(Protocol):
    """Acts on what happens on a connection."""

    def handle(
        self, connection: ClientConnection, message: Message
    ) -> Coroutine[Any, Any, None] | None:
        """Acts on a message. If that takes time, returns what must be awaited before the next one."""
        ...

    def writable_again(self, connection: ClientConnection) -> None: ...


class ClientConnection(asyncio.Protocol):
    """Created by the listener, or with the wire and session that another process handed over."""

    __slots__ = (
        "_code",
        "_frozen",
        "_handler",
        "_handshake",
        "_owner",
        "_step",
        "_waiting",
        "session",
        "transport",
        "wire",
        "writable",
    )  # fmt: skip

    def __init__(
        self,
        owner: ConnectionOwner,
        handler: MessageReceiver,
        session: EdgeSession,
        wire: Framing | None = None,
    ) -> None:
        self._owner = owner
        self._handler = handler
        self.session = session
        self.wire = wire
        self.transport: asyncio.Transport | None = None
        self.writable = True
        self._frozen = False
        self._handshake: ConnectionHandshake | None = None
        self._step: asyncio.Task[None] | None = None
        self._waiting: deque[Message] | None = None
        self._code: CloseCode | None = None

    # -- asyncio.Protocol ----------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are asyncio's in all but their base class.
        self.transport = transport = cast(asyncio.Transport, transport)
        transport.set_write_buffer_limits(high=self._owner.write_buffer_bytes)
        sock = transport.get_extra_info("socket")
        if sock is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if self.wire is None:
            host, address = _peer(transport)
            self.session.address = address
            self._handshake = ConnectionHandshake(self._owner.handshake_rules, host, address)
        refused = self._owner.opened(self)
        if refused is not None:
            self.close(refused, "too many connections")

    def data_received(self, data: bytes) -> None:
        self.session.received_s = self._owner.now_s()
        if self.closed:
            return
        try:
            if self.wire is None:
                data = self._shake_hands(data)
            self._feed(data)
        except Violation as violation:
            self.close(violation.code, violation.text)

    def _feed(self, data: bytes) -> None:
        if self.wire is None:
            return
        for item in self.wire.feed(data):
            self._received(item)
            if self.closed:
                return

    def _shake_hands(self, data: bytes) -> bytes:
        if self._handshake is None or self.transport is None:
            return b""
        result = self._handshake.feed(data)
        if result is None:
            return b""
        if result.answer:
            self.transport.write(result.answer)
        self._handshake = None
        self.wire = result.wire
        self.session.address = result.address
        if result.wire is None:
            self._code = CloseCode.BAD_ORIGIN
            self.transport.close()
        return result.rest

    def pause_writing(self) -> None:
        self.writable = False
        if self.session.blocked_s is None:
            self.session.blocked_s = self._owner.now_s()
        self._update_reading()

    def resume_writing(self) -> None:
        self.writable = True
        self.session.blocked_s = None
        # The time in which the client was not read from does not count as silence.
        self.session.received_s = self._owner.now_s()
        self._update_reading()
        self._handler.writable_again(self)

    def connection_lost(self, _exception: Exception | None) -> None:
        if self._step is not None:
            self._step.cancel()
        self._waiting = None
        self._owner.closed(self, self._code)
        self.session.stage = SessionStage.CLOSED

    # -- messages ------------------------------------------------------------------------------------

    def _received(self, item: Message | ControlFrame) -> None:
        if isinstance(item, ControlFrame):
            self.write(item.answer)
            if item.closed and self.transport is not None:
                self.transport.close()
        elif self._step is not None:
            if self._waiting is None:
                self._waiting = deque()
            self._waiting.append(item)
            self._update_reading()
        else:
            self._handle(item)

    def _handle(self, message: Message) -> None:
        check_allowed(self.session.stage, message)
        step = self._handler.handle(self, message)
        if step is not None:
            self.run_step(step)

    def run_step(self, step: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Messages that arrive before `step` has ended wait for it."""
        self._step = asyncio.get_running_loop().create_task(self._run_step(step))
        return self._step

    async def _run_step(self, step: Coroutine[Any, Any, None]) -> None:
        try:
            await step
            self._step = None
            self._handle_waiting()
            self._update_reading()
        except Violation as violation:
            self._step = None
            self.close(violation.code, violation.text)

    def _handle_waiting(self) -> None:
        while self._waiting and self._step is None and not self.closed:
            self._handle(self._waiting.popleft())

    def freeze(self, *, frozen: bool) -> None:
        """Before a handover: nothing is read, no event is written."""
        self._frozen = frozen
        self._update_reading()
        if not frozen:
            self._handler.writable_again(self)

    @property
    def idle(self) -> bool:
        """Whether all received messages have been handled."""
        return self._step is None and not self._waiting

    def _update_reading(self) -> None:
        """Pauses or resumes reading from the client."""
        transport = self.transport
        if transport is None or transport.is_closing():
            return
        full = self._waiting is not None and len(self._waiting) >= WAITING_MESSAGES_MAX
        if full or self._frozen or not self.writable:
            transport.pause_reading()
        else:
            transport.resume_reading()

    # -- sending and closing -------------------------------------------------------------------------

    @property
    def closed(self) -> bool:
        """Whether the connection is closed or is being closed."""
        return self._code is not None or self.transport is None or self.transport.is_closing()

    def send(self, message: Message) -> None:
        if self.wire is not None:
            self.write(self.wire.encode(message))

    def send_answer(self, request_id: str, reply: Reply) -> None:
        """Answers a request of the client."""
        if self.wire is None:
            return
        body = body_from_json(reply.body, self.wire.encoding) if reply.ok else msgspec.Raw()
        self.send(Answer(request_id, reply.ok, body, reply.code, reply.message))

    def send_error(
        self, code: ErrorCode, text: str, request_id: str | None = None, after_ms: int = 0
    ) -> None:
        """`request_id` is None if the error is not about one request. `after_ms`: when to retry."""
        self.send(Error(code.text, code.retry, text, request_id, after_ms))

    def write(self, data: bytes) -> None:
        if data and not self.closed and self.transport is not None:
            self.transport.write(data)

    def deliver(self, event: OutgoingEvent) -> bool:
        """Returns False if there is no room or no credit: the event stays in the log."""
        session = self.session
        if self.wire is None or self.closed:
            return False
        if self._frozen or not self.writable or session.credit == 0:
            return False
        if session.credit is not None:
            session.credit -= 1
        self.write(event.frame_for(self.wire))
        return True

    def close(self, code: CloseCode, text: str) -> None:
        """Sends the reason, then closes after a while: if the socket closed while the client still
        sends, the client's kernel would discard the reason."""
        if self.closed or self.transport is None:
            return
        self._code = code
        if self.wire is not None:
            self.transport.write(self.wire.encode_close(code, text))
        if self.writable and self.transport.can_write_eof():
            with contextlib.suppress(OSError):
                self.transport.write_eof()
            asyncio.get_running_loop().call_later(LINGER_SECONDS, self.transport.abort)
        elif self.writable:
            self.transport.close()
        else:
            self.transport.abort()


def _peer(transport: asyncio.Transport) -> tuple[str, str]:
    peer = transport.get_extra_info("peername")
    if not isinstance(peer, tuple) or len(peer) < 2:
        return "", "unknown"
    host, port = str(peer[0]), int(peer[1])
    return host, f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
