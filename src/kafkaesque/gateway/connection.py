"""One client's socket, TCP or WebSocket alike: bytes to messages, messages to bytes, and the brakes.

The client is not read from while it does not read: whatever it says makes an answer. Events are refused
while the socket is full; they are in the log (see `outlets`).
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections import deque
from collections.abc import Coroutine
from typing import Any, Protocol, cast

from kafkaesque.edge.protocol.codes import CloseCode, Violation
from kafkaesque.edge.protocol.framing import ControlFrame, Framing
from kafkaesque.edge.protocol.messages import Message
from kafkaesque.gateway.opening import Opening, OpeningRules
from kafkaesque.gateway.rules.outgoing import Outgoing
from kafkaesque.gateway.rules.session import Session
from kafkaesque.gateway.rules.stages import Stage, check_sayable

WAITING_MESSAGES_MAX = 32
"""Said while an earlier one is being seen to; beyond, the client is not read from."""
LINGER_SECONDS = 2.0
"""How long a closed connection may take to notice."""


class Host(Protocol):
    """What a connection needs of its gateway."""

    @property
    def opening_rules(self) -> OpeningRules: ...

    @property
    def write_buffer_bytes(self) -> int: ...

    def now_s(self) -> float: ...

    def opened(self, connection: Connection) -> CloseCode | None:
        """A code if there is no room for it."""
        ...

    def heard(self, connection: Connection, message: Message) -> Coroutine[Any, Any, None] | None:
        """Act on a message; if that takes time, what is to be awaited before the next."""
        ...

    def drained(self, connection: Connection) -> None: ...

    def closed(self, connection: Connection, code: CloseCode | None) -> None: ...


class Connection(asyncio.Protocol):
    """Made by the listener, or with a wire and a session that another process handed over."""

    __slots__ = (
        "_code",
        "_frozen",
        "_host",
        "_opening",
        "_step",
        "_waiting",
        "session",
        "transport",
        "wire",
        "writable",
    )  # fmt: skip

    def __init__(self, host: Host, session: Session, wire: Framing | None = None) -> None:
        self._host = host
        self.session = session
        self.wire = wire
        self.transport: asyncio.Transport | None = None
        self.writable = True
        self._frozen = False
        self._opening: Opening | None = None
        self._step: asyncio.Task[None] | None = None
        self._waiting: deque[Message] | None = None
        self._code: CloseCode | None = None

    # -- asyncio.Protocol ----------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are asyncio's in all but their base class.
        self.transport = transport = cast(asyncio.Transport, transport)
        transport.set_write_buffer_limits(high=self._host.write_buffer_bytes)
        sock = transport.get_extra_info("socket")
        if sock is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if self.wire is None:
            host, address = _peer(transport)
            self.session.address = address
            self._opening = Opening(self._host.opening_rules, host, address)
        refused = self._host.opened(self)
        if refused is not None:
            self.close(refused, "no room for another connection")

    def data_received(self, data: bytes) -> None:
        self.session.heard_s = self._host.now_s()
        if self.closed:
            return
        try:
            if self.wire is None:
                data = self._open(data)
            self._feed(data)
        except Violation as violation:
            self.close(violation.code, violation.text)

    def _feed(self, data: bytes) -> None:
        if self.wire is None:
            return
        for item in self.wire.feed(data):
            self._heard(item)
            if self.closed:
                return

    def _open(self, data: bytes) -> bytes:
        if self._opening is None or self.transport is None:
            return b""
        opened = self._opening.feed(data)
        if opened is None:
            return b""
        if opened.answer:
            self.transport.write(opened.answer)
        self._opening = None
        self.wire = opened.wire
        self.session.address = opened.address
        if opened.wire is None:
            self._code = CloseCode.BAD_ORIGIN
            self.transport.close()
        return opened.rest

    def pause_writing(self) -> None:
        self.writable = False
        if self.session.blocked_s is None:
            self.session.blocked_s = self._host.now_s()
        self._brake()

    def resume_writing(self) -> None:
        self.writable = True
        self.session.blocked_s = None
        # The time in which it was not read from does not count as silence.
        self.session.heard_s = self._host.now_s()
        self._brake()
        self._host.drained(self)

    def connection_lost(self, _exception: Exception | None) -> None:
        if self._step is not None:
            self._step.cancel()
        self._waiting = None
        self._host.closed(self, self._code)
        self.session.stage = Stage.CLOSED

    # -- messages ------------------------------------------------------------------------------------

    def _heard(self, item: Message | ControlFrame) -> None:
        if isinstance(item, ControlFrame):
            self.write(item.answer)
            if item.closed and self.transport is not None:
                self.transport.close()
        elif self._step is not None:
            if self._waiting is None:
                self._waiting = deque()
            self._waiting.append(item)
            self._brake()
        else:
            self._act(item)

    def _act(self, message: Message) -> None:
        check_sayable(self.session.stage, message)
        step = self._host.heard(self, message)
        if step is not None:
            self.occupy(step)

    def occupy(self, step: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """What the client says until `step` is done waits behind it."""
        self._step = asyncio.get_running_loop().create_task(self._take(step))
        return self._step

    async def _take(self, step: Coroutine[Any, Any, None]) -> None:
        """One message that takes time, then those that waited behind it."""
        try:
            await step
            self._step = None
            self._act_on_waiting()
            self._brake()
        except Violation as violation:
            self._step = None
            self.close(violation.code, violation.text)

    def _act_on_waiting(self) -> None:
        while self._waiting and self._step is None and not self.closed:
            self._act(self._waiting.popleft())

    def freeze(self, *, frozen: bool) -> None:
        """Before it is handed over: nothing is read, no event is written."""
        self._frozen = frozen
        self._brake()
        if not frozen:
            self._host.drained(self)

    @property
    def idle(self) -> bool:
        """Nothing that was said is still being seen to."""
        return self._step is None and not self._waiting

    def _brake(self) -> None:
        """Stop or go on reading from the client."""
        transport = self.transport
        if transport is None or transport.is_closing():
            return
        full = self._waiting is not None and len(self._waiting) >= WAITING_MESSAGES_MAX
        if full or self._frozen or not self.writable:
            transport.pause_reading()
        else:
            transport.resume_reading()

    # -- what the gateway does with it ---------------------------------------------------------------

    @property
    def closed(self) -> bool:
        """It has closed, or it has been told why it does."""
        return self._code is not None or self.transport is None or self.transport.is_closing()

    def send(self, message: Message) -> None:
        if self.wire is not None:
            self.write(self.wire.encode(message))

    def write(self, data: bytes) -> None:
        if data and not self.closed and self.transport is not None:
            self.transport.write(data)

    def take(self, event: Outgoing) -> bool:
        """False if there is no room or no credit: the event stays in the log."""
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
        """Say why, then close, but not at once: bytes that the client still sends would make its
        kernel throw away what we said."""
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
