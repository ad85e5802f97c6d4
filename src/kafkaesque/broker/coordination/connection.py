"""One client's connection: frames in, answers out in the order of the requests.

Writes are proposed one after the other without waiting; a read waits for the writes before it and is
then answered from this server's state. Watch events go into the same stream when they happen, so
they precede every answer that shows their effect.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from functools import partial
from hmac import compare_digest
from typing import TypeVar, cast, get_args

from kafkaesque.broker.coordination.four_letter_words import WORDS, ClientView
from kafkaesque.broker.coordination.host import Host
from kafkaesque.broker.coordination.replicated import NotCommitted
from kafkaesque.broker.coordination.rules import acl, queries, replies
from kafkaesque.broker.coordination.rules.acl import AuthIdentity
from kafkaesque.broker.coordination.rules.commands import (
    AttachSession,
    CloseSession,
    Multi,
    OpenSession,
    Operation,
    WriteCommand,
    encode_command,
)
from kafkaesque.broker.coordination.rules.jute import JuteReader
from kafkaesque.broker.coordination.rules.machine import ApplyResult
from kafkaesque.broker.coordination.rules.operations import NodeEvent
from kafkaesque.broker.coordination.rules.requests import (
    AuthRequest,
    CloseRequest,
    ConnectRequest,
    PingRequest,
    Query,
    Reconfig,
    Request,
    Sync,
    read_connect,
    read_request,
)
from kafkaesque.broker.coordination.rules.vocabulary import (
    XID_PING,
    Code,
    CoordinationError,
    OpCode,
    Permission,
)
from kafkaesque.broker.coordination.stream import FrameSplitter, WriteBuffer
from kafkaesque.model.errors import ProtocolError

logger = logging.getLogger("kafkaesque.coordination")

CONNECT_FRAME_BYTES_MAX = 4096
"""A ConnectRequest has 49 bytes; bounds the memory of a connection without a session."""

IDENTITIES_MAX = 64
"""The most identities that one connection may prove; each of its writes contains them."""

T = TypeVar("T")

_OPERATIONS = get_args(Operation)
_QUERIES = get_args(Query)


class _PendingReply:
    """A request in progress; `reply` is set once it is answered."""

    __slots__ = ("reply", "xid")

    def __init__(self, xid: int) -> None:
        self.xid = xid
        self.reply: bytes | None = None


class CoordinationConnection(asyncio.Protocol):
    """The protocol of one connection. `owner` identifies it in the log."""

    def __init__(self, host: Host, owner: int) -> None:
        self._host = host
        self.owner = owner
        self._frames = FrameSplitter(CONNECT_FRAME_BYTES_MAX)
        self._transport: asyncio.Transport | None = None
        self._outbox: WriteBuffer | None = None
        self._address = "?"
        self._identities: tuple[AuthIdentity, ...] = ()
        self._session_id = 0
        self._sequence = 0
        self._waiting: deque[tuple[int, Request | Code]] = deque()
        self._in_progress: deque[_PendingReply] = deque()
        self._is_connecting = False
        self._is_ending = False
        """No further request is accepted: the session ends, or the client broke the protocol."""
        self._is_writing_paused = False

    # -- called by the transport ----------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        unsent_bytes_max = self._host.config.max_unsent_bytes
        self._outbox = WriteBuffer(self._transport, unsent_bytes_max, self._host.counts)
        peer = transport.get_extra_info("peername")
        self._address = peer[0] if peer else "?"
        self._identities = (AuthIdentity("ip", self._address),)
        refusal = self._host.accept(self, self._address)
        if refusal is not None:
            logger.warning("refused connection from %s: %s", self._address, refusal)
            self.abort()

    def data_received(self, data: bytes) -> None:
        if self._is_ending or self._transport is None:
            return
        self._frames.feed(data)
        if not self._session_id and not self._is_connecting and self._is_word():
            return
        self._touch_session()
        try:
            self._take_frames()
        except ProtocolError as error:
            self.end(str(error))

    def pause_writing(self) -> None:
        self._is_writing_paused = True
        self._pause_or_resume()

    def resume_writing(self) -> None:
        self._is_writing_paused = False
        self._touch_session()
        self._advance()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._waiting.clear()
        self._in_progress.clear()
        self._host.coordinator.release(self._session_id, self)
        self._host.lost(self, self._address)

    # -- called by the server -------------------------------------------------------------------

    @property
    def view(self) -> ClientView:
        peer = None if self._transport is None else self._transport.get_extra_info("peername")
        return ClientView(f"{peer[0]}:{peer[1]}" if peer else "?", self._session_id)

    def touch_if_paused(self) -> None:
        """While we do not read a client's socket, its session is kept alive."""
        if not self._is_writing_paused and self.outstanding >= self._outstanding_max:
            self._touch_session()

    @property
    def outstanding(self) -> int:
        """Requests read and not answered yet."""
        return len(self._waiting) + len(self._in_progress)

    @property
    def _outstanding_max(self) -> int:
        return self._host.config.max_outstanding_requests

    def abort(self) -> None:
        self._is_ending = True
        if self._transport is not None:
            self._transport.abort()

    def end(self, reason: str) -> None:
        """Sends the pending answers, then closes; other requests stay unanswered."""
        if self._transport is not None and not self._is_ending:
            logger.info("closing connection from %s: %s", self._address, reason)
        self._close()

    def _close(self) -> None:
        self._is_ending = True
        if self._transport is not None and self._outbox is not None:
            self._outbox.flush()
            self._transport.close()

    def notify(self, event: NodeEvent) -> None:
        # CVE-2024-23944: a watch must not disclose nodes that its client may not read.
        if acl.allows(event.acl, Permission.READ, self._identities):
            self._put(replies.notification(event))

    def session_lost(self, reason: str) -> None:
        if not self._is_ending:
            self.end(reason)

    def _touch_session(self) -> None:
        if self._session_id:
            self._host.coordinator.touch(self._session_id)

    # -- frames ---------------------------------------------------------------------------------

    def _is_word(self) -> bool:
        """Answers a four-letter word and closes; False if it is not one."""
        word = self._frames.first_word().decode("latin-1")
        if word not in WORDS:
            return False
        self._put(self._host.answer_word(word).encode())
        self._close()
        return True

    def _take_frames(self) -> None:
        while not self._is_ending and (frame := self._frames.next_frame()) is not None:
            self._host.counts.received += 1
            if not self._session_id and not self._is_connecting:
                self._connect(read_connect(frame))
            else:
                self._waiting.append(_parse(frame))
        self._advance()

    def _pause_or_resume(self) -> None:
        """Stops reading while too many requests are unanswered or answers unread."""
        if self._transport is None or self._transport.is_closing():
            return
        if self._is_writing_paused or self.outstanding >= self._outstanding_max:
            self._transport.pause_reading()
        elif not self._transport.is_reading():
            self._transport.resume_reading()

    # -- the session ----------------------------------------------------------------------------

    def _connect(self, request: ConnectRequest) -> None:
        host, config = self._host, self._host.config
        applied = host.coordinator.machine.zxid
        if request.last_zxid_seen > applied:
            # The client has seen a later state than this server has: it would go back in time.
            self.end(
                f"the client has seen zxid {request.last_zxid_seen:#x}, this server is at {applied:#x}"
            )
            return
        timeout_ms = max(
            config.min_session_timeout_ms, min(request.timeout_ms, config.max_session_timeout_ms)
        )
        known = host.coordinator.machine.sessions.get(request.session_id)
        if known is not None and not compare_digest(known.password, request.password):
            self._refuse_session(request)
            return
        command: OpenSession | AttachSession
        if request.session_id == 0:
            command = OpenSession(*host.new_session(), timeout_ms, self.owner)
        else:
            command = AttachSession(request.session_id, request.password, timeout_ms, self.owner)
        self._is_connecting = True
        self._frames.limit_bytes = config.max_frame_bytes
        outcome = asyncio.ensure_future(host.replicated.propose(encode_command(command)))
        outcome.add_done_callback(partial(self._connected, request, command))

    def _connected(
        self,
        request: ConnectRequest,
        command: OpenSession | AttachSession,
        answered: asyncio.Future[ApplyResult],
    ) -> None:
        if self._has_failed(answered) or self._transport is None:
            return
        outcome = answered.result()
        self._is_connecting = False
        if outcome.code is Code.SYSTEM_ERROR:
            self.end("no room for another session")
            return
        coordinator = self._host.coordinator
        if outcome.code is not Code.OK or command.session_id not in coordinator.machine.sessions:
            self._refuse_session(request)
            return
        if not coordinator.hold(command.session_id, self):
            self.end("its session moved to another connection")
            return
        self._session_id = command.session_id
        self._touch_session()
        self._put(
            replies.connected(
                command.timeout_ms, command.session_id, command.password, request.has_read_only
            )
        )
        self._advance()

    def _refuse_session(self, request: ConnectRequest) -> None:
        self._put(replies.session_expired(request.has_read_only))
        self.end("its session has expired")

    # -- requests -------------------------------------------------------------------------------

    def _advance(self) -> None:
        """Starts all requests that may start."""
        while self._waiting and self._session_id and not self._is_ending:
            xid, request = self._waiting[0]
            if isinstance(request, _OPERATIONS):
                self._waiting.popleft()
                self._write(xid, request)
            elif self._in_progress or self._is_writing_paused:
                break
            else:
                self._waiting.popleft()
                self._answer(xid, request)
        self._pause_or_resume()

    def _answer(self, xid: int, request: Request | Code) -> None:
        """Answers a request that is not a write, or starts it if it must wait. No write is in progress."""
        match request:
            case PingRequest():
                self._reply(XID_PING, Code.OK)
            case Sync(path):
                body = replies.string_body(path)
                self._begin(xid, self._host.replicated.read_barrier(), lambda _: (Code.OK, body))
            case AuthRequest():
                self._authenticate(xid, request)
            case CloseRequest():
                self._close_session(xid)
            case Reconfig():
                self._reply(xid, Code.RECONFIG_DISABLED)
            case Code():
                self._reply(xid, request)
                if request is Code.UNIMPLEMENTED:
                    self.end("an unknown operation")
            case _ if isinstance(request, _QUERIES):
                self._query(xid, request)

    def _query(self, xid: int, query: Query) -> None:
        refreshed = self._host.registries.refresh(queries.paths_of(query))
        if refreshed is None:
            self._reply(xid, *self._read(query))
        else:
            self._begin(xid, refreshed, lambda _: self._read(query))

    def _read(self, query: Query) -> tuple[Code, bytes]:
        coordinator = self._host.coordinator
        reader = queries.QueryContext(
            coordinator.machine,
            coordinator.watches,
            self,
            self._session_id,
            self._identities,
            coordinator.registry,
        )
        try:
            answer = queries.answer(reader, query)
        except CoordinationError as error:
            return error.code, b""
        for event in answer.missed:
            self.notify(event)
        return Code.OK, answer.body

    def _authenticate(self, xid: int, request: AuthRequest) -> None:
        try:
            identity = acl.prove(request.scheme, request.secret, self._address)
        except CoordinationError as error:
            self._reply(xid, error.code)
            self.end(f"authentication failed: {error}")
            return
        if identity not in self._identities:
            if len(self._identities) >= IDENTITIES_MAX:
                self._reply(xid, Code.AUTH_FAILED)
                self.end("too many identities")
                return
            self._identities += (identity,)
        self._reply(xid, Code.OK)

    def _write(self, xid: int, operation: Operation) -> None:
        host = self._host
        command = WriteCommand(
            self._session_id,
            self.owner,
            self._sequence,
            host.wall_ms(),
            self._identities,
            operation,
        )
        self._sequence += 1
        is_multi = isinstance(operation, Multi)

        def show(outcome: ApplyResult) -> tuple[Code, bytes]:
            return outcome.code, replies.outcome_body(outcome, is_multi=is_multi)

        self._begin(xid, host.replicated.propose(encode_command(command)), show)

    def _close_session(self, xid: int) -> None:
        command = encode_command(CloseSession(self._session_id, self.owner))
        self._begin(
            xid, self._host.replicated.propose(command), lambda outcome: (outcome.code, b"")
        )
        # Set after `_begin`: this answer is still sent, as the last one.
        self._is_ending = True

    def _begin(
        self, xid: int, awaited: Awaitable[T], show: Callable[[T], tuple[Code, bytes]]
    ) -> None:
        exchange = _PendingReply(xid)
        self._in_progress.append(exchange)
        future = asyncio.ensure_future(awaited)
        future.add_done_callback(partial(self._finished, exchange, show))

    def _finished(
        self,
        exchange: _PendingReply,
        show: Callable[[T], tuple[Code, bytes]],
        answered: asyncio.Future[T],
    ) -> None:
        if self._has_failed(answered) or self._transport is None:
            return
        code, body = show(answered.result())
        if code in (Code.SESSION_EXPIRED, Code.SESSION_MOVED):
            # As in ZooKeeper: the connection is closed, and the client reconnects elsewhere.
            self.end(f"its session is no longer its own ({code.name})")
            return
        exchange.reply = replies.reply(
            exchange.xid,
            self._host.coordinator.machine.zxid,
            code,
            body if code is Code.OK else b"",
        )
        while self._in_progress and self._in_progress[0].reply is not None:
            self._put(self._in_progress.popleft().reply or b"")
        if self._is_ending and not self._in_progress:
            self._close()
        else:
            self._advance()

    def _has_failed(self, answered: asyncio.Future[T]) -> bool:
        """True if there is no result; the connection is then closed."""
        error = None if answered.cancelled() else answered.exception()
        if error is None and not answered.cancelled():
            return False
        if error is not None and not isinstance(error, NotCommitted):
            self._host.failed(error)
        self.end(f"a request failed: {error or 'cancelled'}")
        return True

    # -- answers --------------------------------------------------------------------------------

    def _reply(self, xid: int, code: Code, body: bytes = b"") -> None:
        self._put(replies.reply(xid, self._host.coordinator.machine.zxid, code, body))

    def _put(self, data: bytes) -> None:
        if self._outbox is not None:
            self._outbox.put(data)


def _parse(frame: bytes) -> tuple[int, Request | Code]:
    """The xid and the request, or the error to answer. Raises ProtocolError without a header."""
    reader = JuteReader(frame)
    xid, number = reader.int32(), reader.int32()
    try:
        request = read_request(OpCode(number), reader)
    except ValueError:
        return xid, Code.UNIMPLEMENTED
    except ProtocolError:
        return xid, Code.MARSHALLING_ERROR
    return xid, Code.UNIMPLEMENTED if request is None else request
