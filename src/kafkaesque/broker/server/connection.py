"""One client connection: reads requests, and writes the answers in the order of the requests.

The requests of a connection run one after the other; only those whose handler `overlaps` begin
while an earlier one of the same kind still waits. So a slow request delays only its own connection.
While answers are not read, or too many requests are in flight, the socket is not read.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from functools import partial
from time import monotonic
from typing import Protocol

from kafkaesque.broker.replication.rules.peer_hello import is_peer_hello
from kafkaesque.broker.server.call import ClientHost, CloseConnection
from kafkaesque.broker.server.dispatch import Begun, Served
from kafkaesque.broker.server.handler import Answer, Forwarded
from kafkaesque.model import limits
from kafkaesque.model.errors import InvariantBroken, ProtocolError
from kafkaesque.wire.codec import Buffers
from kafkaesque.wire.frames import BufferPool, FrameReader

logger = logging.getLogger("kafkaesque.connection")

WRITE_BUFFER_BYTES = 256 * limits.KIB
"""Above this many unsent bytes, no further request of the connection is begun."""

OUTBOX_BYTES_MAX = 64 * limits.KIB
"""Answers to pipelined requests are sent in one write, which is one system call, up to this
size."""

JOINED_BYTES_MAX = 4 * limits.KIB
"""Up to this size the pieces of a write are joined, which is cheaper than passing several."""


class RequestServer(Protocol):
    """What a connection needs of the `Dispatcher`."""

    def overlaps(self, frame: memoryview) -> bool: ...

    def serve(self, frame: memoryview, client_host: str, started: float) -> Served: ...

    def finish(
        self, begun: Begun, answer: Answer | Forwarded, frame_size_bytes: int, started: float
    ) -> tuple[Buffers, int]: ...


class ConnectionHost(Protocol):
    """The listener that accepted a connection."""

    request_size_bytes_max: int
    requests_in_flight_max: int
    pool: BufferPool

    @property
    def dispatcher(self) -> RequestServer: ...

    def accept(self, connection: Connection, address: str) -> str | None:
        """Returns None to serve the connection, or the reason to refuse it."""
        ...

    def lost(self, connection: Connection, address: str) -> None: ...

    def buffered(self, difference_bytes: int) -> None:
        """The memory held by requests has changed by this much."""
        ...

    def incomplete(self, connection: Connection, size_bytes: int, *, is_new: bool) -> None:
        """`size_bytes` are held for an incomplete request; 0 if there is none. `is_new`: it is
        another request than before."""
        ...

    def unsent(self, difference_bytes: int) -> None:
        """The size of unsent answers has changed by this much."""
        ...

    def protocol_error(self) -> None: ...

    def adopt(self, transport: asyncio.Transport, hello: bytes) -> None:
        """Takes over a connection on which a peer sent a hello."""

    def stop_node(self, error: BaseException) -> None: ...


class _Exchange:
    """A request that was begun. `output` holds its answer's bytes when there is one."""

    __slots__ = ("frame_size_bytes", "later", "output", "output_bytes", "overlaps", "started")

    def __init__(self, started: float, overlaps: bool) -> None:
        self.started = started
        self.overlaps = overlaps
        self.frame_size_bytes = 0
        """The memory held by a request that waits."""
        self.later: asyncio.Future[Answer | Forwarded] | None = None
        self.output: Buffers | None = None
        self.output_bytes = 0


class Connection(asyncio.BufferedProtocol):
    """The asyncio protocol of one client connection."""

    __slots__ = (
        "_address",
        "_begun",
        "_frames",
        "_held",
        "_host",
        "_is_incomplete",
        "_outbox",
        "_outbox_bytes",
        "_paused_reading",
        "_paused_writing",
        "_transport",
        "_unsent_bytes",
        "_waiting",
        "get_buffer",
        "last_received",
    )

    get_buffer: Callable[[int], memoryview]  # type: ignore[assignment]  # called by position
    """The frame reader's method, without indirection."""

    def __init__(self, host: ConnectionHost) -> None:
        self._host = host
        first_limit = limits.REQUEST_SIZE_BYTES_BEFORE_FIRST_ANSWER
        self._frames = FrameReader(min(first_limit, host.request_size_bytes_max), host.pool)
        self.get_buffer = self._frames.get_buffer
        self._transport: asyncio.Transport | None = None
        self._address = "?"
        self._waiting: deque[memoryview] = deque()
        self._begun: deque[_Exchange] = deque()
        self._outbox: Buffers = []
        self._outbox_bytes = 0
        self._held = False
        self._paused_reading = False
        self._paused_writing = False
        self._unsent_bytes = 0
        self._is_incomplete = False
        """Part of a request has arrived."""
        self.last_received = monotonic()

    # -- called by the transport ----------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]
        transport.set_write_buffer_limits(high=WRITE_BUFFER_BYTES)  # type: ignore[attr-defined]
        peer = transport.get_extra_info("peername")
        self._address = ClientHost.at(peer[0] if peer else "?", self.last_received)
        refusal = self._host.accept(self, self._address)
        if refusal is not None:
            logger.warning("refused connection from %s: %s", self._address, refusal)
            transport.abort()  # type: ignore[attr-defined]

    def buffer_updated(self, nbytes: int) -> None:
        self.last_received = monotonic()
        try:
            frames = self._frames.buffer_updated(nbytes)
        except ProtocolError as error:
            self._refuse(error)
            return
        if frames and not self._take(frames):
            return
        held_bytes = self._frames.held_bytes
        if held_bytes or self._is_incomplete:
            self._is_incomplete = held_bytes > 0
            if self._transport is not None:
                self._host.incomplete(self, held_bytes, is_new=bool(frames))

    def pause_writing(self) -> None:
        self._paused_writing = True
        self._count_unsent()

    def resume_writing(self) -> None:
        self._paused_writing = False
        self._count_unsent()
        self._begin_waiting()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        for exchange in self._begun:
            if exchange.later is not None:
                exchange.later.cancel()
        held = sum(map(len, self._waiting)) + sum(e.frame_size_bytes for e in self._begun)
        self._waiting.clear()
        self._begun.clear()
        self._host.buffered(-held)
        self._host.unsent(-self._unsent_bytes)
        self._unsent_bytes = 0
        self._host.lost(self, self._address)

    # -- called by the listener -----------------------------------------------------------------

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def evict(self, reason: str) -> None:
        """Closes the connection at once, because all connections together hold too much memory."""
        logger.warning("closing connection from %s: %s", self._address, reason)
        self.abort()

    def close(self) -> None:
        """Closes the connection once everything written is sent."""
        if self._transport is not None:
            self._transport.close()

    @property
    def is_idle(self) -> bool:
        return not self._begun and not self._waiting

    def hold(self, held: bool) -> None:
        """Stops reading while held: all connections together have too many queued bytes."""
        self._held = held
        self._read_or_pause()

    def _read_or_pause(self) -> None:
        under_way = len(self._waiting) + len(self._begun)
        pause = self._held or under_way >= self._host.requests_in_flight_max
        if self._transport is None or pause is self._paused_reading:
            return
        self._paused_reading = pause
        if pause:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()

    # -- requests -------------------------------------------------------------------------------

    def _take(self, frames: list[memoryview]) -> bool:
        """Begins requests, or queues them for their turn. Returns False if the connection has
        ended."""
        for frame in frames:
            if self._begun or self._waiting or self._paused_writing:
                self._host.buffered(len(frame))
                self._waiting.append(frame)
            elif not self._begin(frame):
                return False
        if self._outbox:
            self._send()
        if self._waiting:
            self._begin_waiting()
        return True

    def _begin_waiting(self) -> None:
        while self._waiting and self._may_begin():
            frame = self._waiting.popleft()
            self._host.buffered(-len(frame))
            if not self._begin(frame):
                return
        if self._outbox:
            self._send()
        self._read_or_pause()

    def _may_begin(self) -> bool:
        if self._paused_writing:
            return False
        if not self._begun:
            return True
        return (
            self._begun[-1].overlaps
            and len(self._begun) < self._host.requests_in_flight_max
            and self._host.dispatcher.overlaps(self._waiting[0])
        )

    def _begin(self, frame: memoryview) -> bool:
        """Starts a request, and answers it if it is done at once. Returns False if the connection
        has ended."""
        if self._transport is None:
            return False
        try:
            output, size_bytes, begun = self._host.dispatcher.serve(
                frame, self._address, self.last_received
            )
        except ProtocolError as error:
            if is_peer_hello(frame):
                self._hand_over(frame)
            else:
                self._refuse(error)
            return False
        except Exception as error:  # noqa: BLE001 - supervisor: only this connection fails
            self._failed(error)
            return False
        if begun is not None:
            self._await(begun, len(frame))
        elif self._begun:
            # Only a request that overlaps begins while others are in flight.
            exchange = _Exchange(self.last_received, overlaps=True)
            exchange.output, exchange.output_bytes = output, size_bytes
            self._begun.append(exchange)
        else:
            self._outbox += output
            self._outbox_bytes += size_bytes
            if self._outbox_bytes > OUTBOX_BYTES_MAX:
                self._send()
        return True

    def _await(self, begun: Begun, frame_size_bytes: int) -> None:
        exchange = _Exchange(self.last_received, begun.overlaps)
        exchange.frame_size_bytes = frame_size_bytes
        self._begun.append(exchange)
        self._host.buffered(frame_size_bytes)
        exchange.later = asyncio.ensure_future(begun.later)
        exchange.later.add_done_callback(partial(self._answered, exchange, begun))

    def _hand_over(self, hello: memoryview) -> None:
        """The sender is a broker, not a client: the connection becomes a link."""
        transport = self._transport
        self.connection_lost(None)
        if transport is not None:
            self._host.adopt(transport, bytes(hello))

    def _answered(
        self, exchange: _Exchange, begun: Begun, task: asyncio.Future[Answer | Forwarded]
    ) -> None:
        if task.cancelled() or self._transport is None:
            return
        error = task.exception()
        if error is not None:
            self._failed(error)
            return
        try:
            exchange.output, exchange.output_bytes = self._host.dispatcher.finish(
                begun, task.result(), exchange.frame_size_bytes, exchange.started
            )
        except Exception as failure:  # noqa: BLE001 - supervisor, as above
            self._failed(failure)
            return
        while self._begun and self._begun[0].output is not None:
            ready = self._begun.popleft()
            self._host.buffered(-ready.frame_size_bytes)
            self._outbox += ready.output or []
            self._outbox_bytes += ready.output_bytes
            if self._outbox_bytes > OUTBOX_BYTES_MAX:
                self._send()
        self._begin_waiting()

    def _send(self) -> None:
        """Writes the queued answers to the socket."""
        outbox, size_bytes = self._outbox, self._outbox_bytes
        self._outbox, self._outbox_bytes = [], 0
        if outbox and self._transport is not None:
            if size_bytes <= JOINED_BYTES_MAX:
                self._transport.write(outbox[0] if len(outbox) == 1 else b"".join(outbox))
            else:
                self._transport.writelines(outbox)
            self._frames.limit_bytes = self._host.request_size_bytes_max

    def _count_unsent(self) -> None:
        if self._transport is not None:
            now_bytes = self._transport.get_write_buffer_size()
            self._host.unsent(now_bytes - self._unsent_bytes)
            self._unsent_bytes = now_bytes

    # -- failures -------------------------------------------------------------------------------

    def _refuse(self, error: ProtocolError) -> None:
        self._host.protocol_error()
        logger.warning("closing connection from %s: %s", self._address, error)
        self._send()
        self.abort()

    def _failed(self, error: BaseException) -> None:
        """Closes the connection after a handler failed. The node keeps running, unless an invariant
        is broken."""
        self._send()
        if isinstance(error, CloseConnection):
            logger.info("closing connection from %s: %s", self._address, error)
            self.close()
            return
        logger.error("closing connection from %s: request failed", self._address, exc_info=error)
        self.abort()
        if isinstance(error, InvariantBroken):
            self._host.stop_node(error)
