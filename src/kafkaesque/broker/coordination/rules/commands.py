"""The commands in the replicated log, and their encoding.

MessagePack arrays with a number as tag, compact for small writes. A field is never removed or
reused; a new one is appended with a default. The proposer has already drawn every random number and
read the clock: applying a command is deterministic.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from kafkaesque.broker.coordination.rules.acl import Acl, AuthIdentity
from kafkaesque.broker.coordination.rules.vocabulary import OpCode


class Create(msgspec.Struct, frozen=True, array_like=True, tag=1):
    path: str
    data: bytes | None
    acl: tuple[Acl, ...]
    mode: int
    opcode: int = OpCode.CREATE
    """Which of the four create requests it was: their answers differ."""
    ttl_ms: int = 0


class Delete(msgspec.Struct, frozen=True, array_like=True, tag=2):
    path: str
    version: int


class SetData(msgspec.Struct, frozen=True, array_like=True, tag=3):
    path: str
    data: bytes | None
    version: int


class SetAcl(msgspec.Struct, frozen=True, array_like=True, tag=4):
    path: str
    acl: tuple[Acl, ...]
    version: int


class Check(msgspec.Struct, frozen=True, array_like=True, tag=5):
    path: str
    version: int


MultiPart: TypeAlias = Create | Delete | SetData | Check


class Multi(msgspec.Struct, frozen=True, array_like=True, tag=6):
    """All or nothing."""

    parts: tuple[MultiPart, ...]


Operation: TypeAlias = Create | Delete | SetData | SetAcl | Check | Multi


class WriteCommand(msgspec.Struct, frozen=True, array_like=True, tag=10):
    """A client's request to change the tree."""

    session_id: int
    owner: int
    """The connection of the session when the request arrived; see `AttachSession`."""
    sequence: int
    """Number of the write on that connection, from 0. Writes are applied in order and without gaps,
    or not at all, whatever happens to a proposal before it is in the log."""
    now_ms: int
    identities: tuple[AuthIdentity, ...]
    operation: Operation


class OpenSession(msgspec.Struct, frozen=True, array_like=True, tag=11):
    session_id: int
    password: bytes
    timeout_ms: int
    owner: int


class AttachSession(msgspec.Struct, frozen=True, array_like=True, tag=12):
    """A client resumes its session on another connection, here or on another server.

    It is in the log so that it is ordered with the session's writes and expiry: from here on writes
    of the old connection are rejected, and a server that applied it has seen all that the old server
    showed.
    """

    session_id: int
    password: bytes
    timeout_ms: int
    owner: int


class CloseSession(msgspec.Struct, frozen=True, array_like=True, tag=13):
    """The end of a session: closed by its client, or expired."""

    session_id: int
    owner: int
    """The connection that closes it, or the last one that the leader has a report of; one attached since keeps
    the session."""
    is_expired: bool = False


class Reap(msgspec.Struct, frozen=True, array_like=True, tag=14):
    """Removes an empty container or a node past its TTL, unless it has changed since it was found."""

    path: str
    czxid: int
    mzxid: int


Command: TypeAlias = WriteCommand | OpenSession | AttachSession | CloseSession | Reap

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Command)


def encode_command(command: Command) -> bytes:
    return _encoder.encode(command)


def decode_command(data: bytes) -> Command:
    command: Command = _decoder.decode(data)
    return command
