"""ZooKeeper's wire protocol over one blocking socket: any request, raw replies.

For requests that no client library would send. Bodies are written with our own codec, which the tests
with kazoo check against its serialisation.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable
from types import TracebackType
from typing import NamedTuple

from kafkaesque.broker.coordination.rules.jute import JuteReader, JuteWriter

OPEN = ((31, "world", "anyone"),)


class Reply(NamedTuple):
    xid: int
    zxid: int
    code: int
    body: bytes

    @property
    def reader(self) -> JuteReader:
        return JuteReader(self.body)


class Session(NamedTuple):
    timeout_ms: int
    session_id: int
    password: bytes


class Closed(Exception):
    """The server closed the connection."""


class RawClient:
    """A connection; `connect` opens a session on it."""

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), timeout=10)
        self._xid = 0

    def __enter__(self) -> RawClient:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        self._socket.close()

    def send_raw(self, data: bytes) -> None:
        self._socket.sendall(data)

    def send_frame(self, body: bytes) -> None:
        self._socket.sendall(struct.pack(">i", len(body)) + body)

    def read_all(self) -> bytes:
        """Everything until the server closes."""
        data = b""
        try:
            while chunk := self._socket.recv(65536):
                data += chunk
        except ConnectionResetError:
            pass
        return data

    def is_closed(self) -> bool:
        """Waits until the server sends something or closes; True if it closed."""
        try:
            return self._socket.recv(1) == b""
        except ConnectionResetError:
            return True

    def read_frame(self) -> bytes:
        (size,) = struct.unpack(">i", self._read(4))
        return self._read(size)

    def _read(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            try:
                chunk = self._socket.recv(size - len(data))
            except ConnectionResetError:
                chunk = b""
            if not chunk:
                raise Closed
            data += chunk
        return data

    def connect(
        self,
        timeout_ms: int = 10_000,
        session_id: int = 0,
        password: bytes = bytes(16),
        last_zxid: int = 0,
        *,
        read_only_flag: bool = True,
    ) -> Session:
        writer = JuteWriter()
        writer.int32(0)
        writer.int64(last_zxid)
        writer.int32(timeout_ms)
        writer.int64(session_id)
        writer.buffer(password)
        if read_only_flag:
            writer.boolean(False)
        self.send_frame(writer.getvalue())
        reader = JuteReader(self.read_frame())
        reader.int32()
        session = Session(reader.int32(), reader.int64(), reader.buffer() or b"")
        assert reader.remaining_bytes == (1 if read_only_flag else 0)
        return session

    def send(self, opcode: int, body: bytes = b"", xid: int | None = None) -> int:
        if xid is None:
            self._xid += 1
            xid = self._xid
        self.send_frame(struct.pack(">ii", xid, opcode) + body)
        return xid

    def receive(self) -> Reply:
        data = self.read_frame()
        return Reply(*struct.unpack(">iqi", data[:16]), data[16:])

    def ask(self, opcode: int, body: bytes = b"", xid: int | None = None) -> Reply:
        """Send a request and return its reply; there must be no event in between."""
        sent = self.send(opcode, body, xid)
        reply = self.receive()
        assert reply.xid == sent, reply
        return reply


Field = Callable[[JuteWriter], None]


def body(*fields: object) -> bytes:
    """str, bytes, None (a null buffer), bool, `Long`, int, and tuples of ACL entries, in order."""
    writer = JuteWriter()
    for field in fields:
        match field:
            case bool():
                writer.boolean(field)
            case Long():
                writer.int64(field.value)
            case int():
                writer.int32(field)
            case str():
                writer.string(field)
            case bytes() | None:
                writer.buffer(field)
            case tuple():
                writer.int32(len(field))
                for perms, scheme, identity in field:
                    writer.int32(perms)
                    writer.string(scheme)
                    writer.string(identity)
            case list():
                writer.vector(field, writer.string)
            case _:
                raise TypeError(field)
    return writer.getvalue()


class Long(NamedTuple):
    value: int


def create_body(path: str, data: bytes | None = b"", acl: object = OPEN, flags: int = 0) -> bytes:
    return body(path, data, acl, flags)


def multi_body(*parts: tuple[int, bytes]) -> bytes:
    ended = struct.pack(">i?i", -1, True, -1)
    return b"".join(struct.pack(">i?i", op, False, -1) + part for op, part in parts) + ended
