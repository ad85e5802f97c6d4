"""A blocking ZooKeeper connection that hides nothing, for the coordination runs.

A client library would reconnect, retry and resume watches by itself; a check of a server must see every
event and every reply in the order in which they arrived.
"""

from __future__ import annotations

import contextlib
import socket
import struct
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from kafkaesque.broker.coordination.rules.jute import JuteReader, JuteWriter
from kafkaesque.broker.coordination.rules.vocabulary import (
    XID_NOTIFICATION,
    XID_SET_WATCHES,
    AddWatchMode,
    Code,
    CreateMode,
    EventType,
    OpCode,
)
from kafkaesque.model.address import parse_address

TIMEOUT_S: Final = 3.0
_OPEN_ACL = ((31, "world", "anyone"),)
_STAT = struct.Struct(">qqqqiiiqiiq")
_REPLY = struct.Struct(">iqi")
_PART = struct.Struct(">i?i")


class ZnodeConnectionLost(Exception):
    """The connection was closed or timed out."""


class SessionExpired(Exception):
    """The server does not have the session any more."""


class ZnodeSession(NamedTuple):
    session_id: int = 0
    password: bytes = bytes(16)


class ZnodeReply(NamedTuple):
    zxid: int
    code: int
    body: bytes


class NodeStat(NamedTuple):
    version: int
    mzxid: int


class WatchEvent(NamedTuple):
    """A notification of a watch."""

    zxid: int
    type: EventType
    path: str


class ZnodeConnection:
    """A connection with a session.

    `on_event` is called with every event before the call returns whose reply follows the event.
    """

    def __init__(self, address: str, on_event: Callable[[WatchEvent], None]) -> None:
        self._on_event = on_event
        self._xid = 0
        try:
            self._socket = socket.create_connection(parse_address(address), TIMEOUT_S)
        except OSError as error:
            raise ZnodeConnectionLost(str(error)) from error
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._socket.close()

    def attach(self, session: ZnodeSession, timeout_ms: int, last_zxid: int) -> ZnodeSession:
        """Open a session or resume one.

        Raises SessionExpired if it has expired, ZnodeConnectionLost if this server has not reached
        `last_zxid`.
        """
        writer = JuteWriter()
        writer.int32(0)
        writer.int64(last_zxid)
        writer.int32(timeout_ms)
        writer.int64(session.session_id)
        writer.buffer(session.password)
        self._send(writer.getvalue())
        reader = JuteReader(self._read_frame())
        reader.int32()
        granted_ms, session_id, password = reader.int32(), reader.int64(), reader.buffer() or b""
        if granted_ms <= 0 or session_id == 0:
            raise SessionExpired(hex(session.session_id))
        return ZnodeSession(session_id, password)

    # -- requests --------------------------------------------------------------------------------

    def get(self, path: str, *, watch: bool = False) -> tuple[bytes, NodeStat, int]:
        """Data, stat and the reply's zxid."""
        writer = JuteWriter()
        writer.string(path)
        writer.boolean(watch)
        reply = self._request(OpCode.GET_DATA, writer)
        return JuteReader(reply.body).buffer() or b"", _stat(reply.body), reply.zxid

    def set(self, path: str, data: bytes, version: int = -1) -> tuple[ZnodeReply, NodeStat | None]:
        reply = self._request(OpCode.SET_DATA, _set_body(path, data, version))
        return reply, _stat(reply.body) if reply.code == Code.OK else None

    def set_all(self, parts: Sequence[tuple[str, bytes]]) -> tuple[ZnodeReply, list[NodeStat]]:
        """A transaction: all writes or none."""
        writer = JuteWriter()
        for path, data in parts:
            writer.raw(_PART.pack(OpCode.SET_DATA, False, -1))
            writer.raw(_set_body(path, data, -1).getvalue())
        writer.raw(_PART.pack(-1, True, -1))
        reply = self._request(OpCode.MULTI, writer)
        size = _PART.size + _STAT.size
        stats = [
            _stat(reply.body[start : start + size])
            for start in range(0, size * len(parts), size)
            if reply.code == Code.OK
        ]
        return reply, stats

    def create(self, path: str, mode: CreateMode = CreateMode.PERSISTENT) -> ZnodeReply:
        writer = JuteWriter()
        writer.string(path)
        writer.buffer(b"")
        writer.int32(len(_OPEN_ACL))
        for permissions, scheme, identity in _OPEN_ACL:
            writer.int32(permissions)
            writer.string(scheme)
            writer.string(identity)
        writer.int32(mode)
        return self._request(OpCode.CREATE, writer)

    def exists(self, path: str) -> bool:
        writer = JuteWriter()
        writer.string(path)
        writer.boolean(False)
        return self._request(OpCode.EXISTS, writer).code == Code.OK

    def sync(self, path: str) -> ZnodeReply:
        writer = JuteWriter()
        writer.string(path)
        return self._request(OpCode.SYNC, writer)

    def watch_below(self, path: str) -> ZnodeReply:
        """A persistent recursive watch."""
        writer = JuteWriter()
        writer.string(path)
        writer.int32(AddWatchMode.PERSISTENT_RECURSIVE)
        return self._request(OpCode.ADD_WATCH, writer)

    def resume_watches(self, since_zxid: int, data: Sequence[str]) -> ZnodeReply:
        """Resume the data watches of an earlier connection."""
        writer = JuteWriter()
        writer.int64(since_zxid)
        for paths in (data, (), ()):
            writer.vector(paths, writer.string)
        return self._request(OpCode.SET_WATCHES, writer, XID_SET_WATCHES)

    def _request(self, opcode: OpCode, body: JuteWriter, xid: int | None = None) -> ZnodeReply:
        if xid is None:
            self._xid += 1
            xid = self._xid
        self._send(struct.pack(">ii", xid, opcode) + body.getvalue())
        while True:
            frame = self._read_frame()
            answered, zxid, code = _REPLY.unpack_from(frame)
            rest = frame[_REPLY.size :]
            if answered == XID_NOTIFICATION:
                reader = JuteReader(rest)
                kind = reader.int32()
                reader.int32()
                self._on_event(WatchEvent(zxid, EventType(kind), reader.string()))
            elif answered == xid:
                return ZnodeReply(zxid, code, rest)

    # -- bytes -----------------------------------------------------------------------------------

    def _send(self, body: bytes) -> None:
        try:
            self._socket.sendall(struct.pack(">i", len(body)) + body)
        except OSError as error:
            raise ZnodeConnectionLost(str(error)) from error

    def _read_frame(self) -> bytes:
        (size_bytes,) = struct.unpack(">i", self._read(4))
        return self._read(size_bytes)

    def _read(self, size_bytes: int) -> bytes:
        data = bytearray()
        while len(data) < size_bytes:
            try:
                piece = self._socket.recv(size_bytes - len(data))
            except OSError as error:
                raise ZnodeConnectionLost(str(error)) from error
            if not piece:
                raise ZnodeConnectionLost("closed by the server")
            data += piece
        return bytes(data)


def _set_body(path: str, data: bytes, version: int) -> JuteWriter:
    writer = JuteWriter()
    writer.string(path)
    writer.buffer(data)
    writer.int32(version)
    return writer


def _stat(body: bytes) -> NodeStat:
    """The stat at the end of a reply's body."""
    _, mzxid, _, _, version, *_ = _STAT.unpack_from(body, len(body) - _STAT.size)
    return NodeStat(version, mzxid)
