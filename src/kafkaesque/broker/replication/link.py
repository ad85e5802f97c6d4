"""One connection between two brokers: dispatches incoming frames and sends outgoing ones.

`links` decides who dials whom, which of two connections is kept, and when a broker is unreachable.
A link belongs to one incarnation of either process and ends with it, so it never delivers a message
of an earlier incarnation.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Awaitable
from functools import partial
from typing import NamedTuple, Protocol

from kafkaesque.broker.raft.messages import Message
from kafkaesque.broker.replication.link_writer import LinkWriter
from kafkaesque.broker.replication.peer_calls import CallServer, OutstandingCalls
from kafkaesque.broker.replication.rules.liveness import Liveness
from kafkaesque.broker.replication.rules.peer_codec import (
    FRAME_BYTES_MAX,
    BatchReader,
    GroupMessage,
    Outcome,
    Part,
    PeerAnswer,
    PeerCall,
    PeerPing,
    PeerPong,
    decode_frame,
)
from kafkaesque.broker.replication.rules.peer_hello import (
    HelloAnswer,
    PeerHello,
    PeerIdentity,
    Purpose,
    decode_hello_answer,
    encode_hello,
)
from kafkaesque.model.clock import Clock
from kafkaesque.model.errors import ProtocolError
from kafkaesque.model.ids import GroupId, MemberId, NodeId
from kafkaesque.model.limits import MIB
from kafkaesque.wire.frames import BufferPool, FrameReader

logger = logging.getLogger("kafkaesque.links")


class LinkConfig(NamedTuple):
    pulse_seconds: float = 0.1
    """The interval at which each side sends pings and checks for silent peers and overdue calls."""
    silence_seconds: float = 1.0
    """A peer that sends nothing for this long is unreachable. Each side announces its value,
    because the other side's leases depend on it."""
    lease_margin_seconds: float = 0.05
    """A lease is this much shorter than the silence it relies on, because clocks run at different
    rates."""
    heartbeat_age_max_seconds: float = 0.35
    """A ping counts in full if every group sent its heartbeats at most this long ago: three ticks
    and a little. Any further delay is subtracted from the lease."""
    dial_seconds_max: float = 1.0
    """Timeout for connecting and exchanging hellos."""
    redial_seconds_min: float = 0.05
    redial_seconds_max: float = 1.0
    queued_bytes_max: int = 32 * MIB
    """Bytes queued for one peer. Further messages are dropped; Raft sends them again."""
    calls_max: int = 1024
    """Calls in flight to, and from, one peer."""
    introductions_max: int = 64
    """Simultaneous connections from brokers that are not peers."""

    @property
    def silence_ms(self) -> int:
        """The value announced to the other side. Rounded down, which promises less."""
        return int(self.silence_seconds * 1000)


class LinkInbox(Protocol):
    """Receives the messages and events of all links. Called on the event loop only. An exception
    from any method except `call` stops the node."""

    def raft_message(self, group: GroupId, message: Message) -> None: ...

    def call(self, node: NodeId, kind: int, body: bytes) -> bytes | Awaitable[bytes]:
        """Handles a request from a broker, which need not be a peer yet. An exception is returned
        to it."""
        ...

    def post(self, node: NodeId, kind: int, body: bytes) -> None: ...

    def reachable(self, node: NodeId) -> None: ...

    def unreachable(self, node: NodeId) -> None:
        """The link is gone. Messages that were sent may be lost."""
        ...

    def dropped(self, node: NodeId) -> None:
        """The link is up but its queue is full: Raft messages to the node were dropped in this
        turn. This does not mean that a leader there is gone."""
        ...

    def heartbeats_since(self) -> float:
        """Returns the time, on the link's clock, since which every group led here has sent
        heartbeats to its members."""
        ...


class LinkHost(Protocol):
    """The part of `Links` that a link uses."""

    me: PeerIdentity
    config: LinkConfig
    clock: Clock
    inbox: LinkInbox
    pool: BufferPool
    read_batch: BatchReader

    def may_greet(self, link: Link) -> bool:
        """Whether a connection that we dialled, and that is now established, is still needed."""
        ...

    def answered(self, link: Link, answer: HelloAnswer) -> None: ...

    def lost(self, link: Link, reason: str) -> None:
        """The link ended. Called once, whichever side ended it."""
        ...

    def dropped(self, node: NodeId) -> None: ...

    def fail(self, error: BaseException) -> None:
        """Stops the node because of a fatal error."""
        ...


class Origin(NamedTuple):
    """How a link was created."""

    is_mine: bool
    """We dialled."""
    purpose: Purpose
    attempt: int
    node_id: NodeId | None
    """The node on the other side; None if it is unknown until it answers."""


class Link(asyncio.BufferedProtocol):
    """The asyncio protocol of one link. A dialled link sends a hello and waits for the answer; an
    accepted one starts with `adopt`."""

    __slots__ = (
        "_frames",
        "_host",
        "_is_ended",
        "_server",
        "_transport",
        "calls",
        "closed",
        "drops_incoming",
        "greeted",
        "liveness",
        "origin",
        "peer",
        "received_bytes",
        "strayed_count",
        "writer",
    )

    def __init__(self, host: LinkHost, loop: asyncio.AbstractEventLoop, origin: Origin) -> None:
        config = host.config
        self._host = host
        self.origin = origin
        self._frames = FrameReader(FRAME_BYTES_MAX, host.pool, frame_bytes_min=1)
        self._transport: asyncio.Transport | None = None
        self._is_ended = False
        self.peer: PeerIdentity | None = None
        """From the peer's hello, or from its answer to ours."""
        self.greeted: asyncio.Future[HelloAnswer | None] = loop.create_future()
        """The answer to our hello; None if the connection was lost before it arrived."""
        self.liveness = Liveness(
            host.clock.monotonic(),
            config.silence_seconds,
            config.pulse_seconds,
            config.lease_margin_seconds,
            config.heartbeat_age_max_seconds,
        )
        self.writer = LinkWriter(loop, config.queued_bytes_max, self._stamp, self._dropped)
        self.calls = OutstandingCalls(loop, config.calls_max)
        self._server = CallServer(config.calls_max, self._answer_call, host.fail)
        self.closed = asyncio.Event()
        """Set when the connection is closed."""
        self.drops_incoming = False
        """Discards everything that arrives, as if the network had lost it. For tests."""
        self.received_bytes = 0
        self.strayed_count = 0
        """Messages from or for another incarnation of either broker. They are discarded."""

    # -- called by the transport ------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Sends the hello on a connection that we dialled."""
        self._attach(transport)  # type: ignore[arg-type]
        if self._is_ended or not self._host.may_greet(self):
            self.end("no longer needed")
            return
        silence_ms = self._host.config.silence_ms
        hello = PeerHello(self._host.me, self.origin.purpose, self.origin.attempt, silence_ms)
        transport.write(encode_hello(hello))  # type: ignore[attr-defined]

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._frames.get_buffer(sizehint)

    def buffer_updated(self, nbytes: int) -> None:
        if self._is_ended:
            return
        self.received_bytes += nbytes
        try:
            frames = self._frames.buffer_updated(nbytes)
            if self.drops_incoming:
                return
            self.liveness.heard(self._host.clock.monotonic())
            for frame in frames:
                if not self._receive(frame):
                    return
        except ProtocolError as error:
            logger.warning("closing the link to %s: %s", self, error)
            self.end(str(error))
        except Exception as error:  # noqa: BLE001 - supervisor: an invariant is broken, the node stops
            self.end("failed")
            self._host.fail(error)

    def pause_writing(self) -> None:
        self.writer.pause()

    def resume_writing(self) -> None:
        self.writer.resume()

    def connection_lost(self, exc: Exception | None) -> None:
        self.end(f"connection lost: {exc}" if exc else "closed by the other side")
        self._transport = None
        self.closed.set()

    # -- called by the links ----------------------------------------------------------------------

    def adopt(self, transport: asyncio.Transport, peer: PeerIdentity, answer: bytes) -> None:
        """Take over a connection whose hello was accepted."""
        self.peer = peer
        transport.set_protocol(self)
        self._attach(transport)
        transport.write(answer)
        if not transport.is_reading():
            transport.resume_reading()

    def open(self, silence_ms: int) -> None:
        """Starts the link after the hellos. `silence_ms` is the silence that the other side
        announced."""
        self.liveness.promised(silence_ms / 1000)
        self.liveness.heard(self._host.clock.monotonic())
        if self._transport is not None:
            self.writer.open(self._transport)
        self.writer.ping()

    def feed(self, data: bytes) -> None:
        """Processes bytes that arrived right after the hello."""
        rest = memoryview(data)
        while rest and not self._is_ended:
            buffer = self._frames.get_buffer()
            size_bytes = min(len(buffer), len(rest))
            buffer[:size_bytes] = rest[:size_bytes]
            rest = rest[size_bytes:]
            self.buffer_updated(size_bytes)

    def pulse(self, now: float) -> None:
        self.calls.expire(now)
        if self.liveness.pulse(now):
            self.end(f"silent for {self._host.config.silence_seconds} s")
        else:
            self.writer.ping()

    def end(self, reason: str, *, flush: bool = False) -> None:
        """Ends the link: it delivers and sends nothing more. With `flush`, queued messages are
        still sent and only our sending side is closed; the other side closes the connection when it
        has read them. (Closing before its data is read would cause a TCP reset, which would discard
        our data.)"""
        if self._is_ended:
            return
        self._is_ended = True
        if flush:
            self.writer.flush_all()
        self.writer.close()
        if self._transport is not None:
            if flush:
                self._close_write_side(self._transport)
            else:
                self._transport.abort()
        if not self.greeted.done():
            self.greeted.set_result(None)
        self.calls.fail()
        self._server.cancel()
        self._host.lost(self, reason)

    def _close_write_side(self, transport: asyncio.Transport) -> None:
        try:
            if not transport.is_closing():
                transport.write_eof()
        except OSError:  # the other side closed first
            transport.abort()

    def abort(self) -> None:
        """Stops waiting for flushed data."""
        if self._transport is not None:
            self._transport.abort()

    @property
    def member(self) -> MemberId | None:
        return self.peer.member if self.peer is not None else None

    def __repr__(self) -> str:
        node = self.peer.node_id if self.peer is not None else self.origin.node_id
        return f"node {'?' if node is None else node}"

    # -- inside -----------------------------------------------------------------------------------

    def _attach(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        connection: socket.socket | None = transport.get_extra_info("socket")
        if connection is not None and connection.family in (socket.AF_INET, socket.AF_INET6):
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)

    def _receive(self, frame: memoryview) -> bool:
        """Returns False when the link has ended."""
        if self.peer is None:
            answer = decode_hello_answer(frame)
            if not self.greeted.done():
                self.greeted.set_result(answer)
            self._host.answered(self, answer)
            return not self._is_ended
        member, me = self.peer.member, self._host.me.member
        raft_message = self._host.inbox.raft_message
        is_link = self.origin.purpose is Purpose.LINK
        for part in decode_frame(frame, self._host.read_batch):
            if type(part) is not GroupMessage:
                self._receive_other(part, self.peer.node_id)
            elif is_link and part.message.sender == member and part.message.to == me:
                raft_message(part.group, part.message)
            else:
                self.strayed_count += 1
            if self._is_ended:
                return False
        return True

    def _receive_other(self, part: Part, node: NodeId) -> None:
        inbox = self._host.inbox
        if isinstance(part, PeerPing):
            self.writer.pong(part.stamp)
        elif isinstance(part, PeerPong):
            self.liveness.pong(part.stamp, self._host.clock.monotonic())
        elif isinstance(part, PeerAnswer):
            self.calls.answered(part)
        elif isinstance(part, PeerCall):
            self._server.serve(part, partial(inbox.call, node, part.kind, part.body))
        elif not isinstance(part, GroupMessage):
            inbox.post(node, part.kind, part.body)

    def _answer_call(self, answer: PeerAnswer) -> None:
        if not self._is_ended and not self.writer.add(answer):
            text = b"the answer is too large, or the send queue is full"
            self.writer.add(PeerAnswer(answer.number, Outcome.FAILED, text))

    def _stamp(self) -> int:
        return self.liveness.ping(self._host.clock.monotonic(), self._host.inbox.heartbeats_since())

    def _dropped(self) -> None:
        self.liveness.dropped(self._host.clock.monotonic(), self._host.inbox.heartbeats_since())
        if self.peer is not None and not self._is_ended:
            self._host.dropped(self.peer.node_id)
