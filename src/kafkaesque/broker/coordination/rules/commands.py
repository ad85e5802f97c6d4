"""What may be written to the replicated log, and its bytes.

MessagePack arrays with a number for a tag, as compact as a log of small writes wants. A field is
never removed or given another meaning; a new one is appended with a default. Whatever chance or a
clock decides was decided by the proposer: applying a command is the same everywhere.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from kafkaesque.broker.coordination.rules.acl import Acl, Identity
from kafkaesque.broker.coordination.rules.vocabulary import OpCode


class Create(msgspec.Struct, frozen=True, array_like=True, tag=1):
    path: str
    data: bytes | None
    acl: tuple[Acl, ...]
    mode: int
    opcode: int = OpCode.CREATE
    """Which of the four create requests it was: they differ in their answers."""
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


class Write(msgspec.Struct, frozen=True, array_like=True, tag=10):
    """A client's request to change the tree."""

    session_id: int
    owner: int
    """The connection that the session was on when the request came; see `AttachSession`."""
    sequence: int
    """Counts the writes of that connection from 0: they apply in order and without a gap, or not
    at all, whatever happens to a proposal on its way to the log."""
    now_ms: int
    identities: tuple[Identity, ...]
    operation: Operation


class OpenSession(msgspec.Struct, frozen=True, array_like=True, tag=11):
    session_id: int
    password: bytes
    timeout_ms: int
    owner: int


class AttachSession(msgspec.Struct, frozen=True, array_like=True, tag=12):
    """A client came back with its session on another connection, here or elsewhere.

    In the log, so that it is ordered with the session's writes and its expiry: from here on the old
    connection's writes are refused, and whoever applied it has seen all that the old server showed.
    """

    session_id: int
    password: bytes
    timeout_ms: int
    owner: int


class CloseSession(msgspec.Struct, frozen=True, array_like=True, tag=13):
    """The end of a session: by its client, or because it was silent for too long."""

    session_id: int
    owner: int
    """The connection that asked, or the last that the leader heard: one attached since keeps it."""
    is_expired: bool = False


class Reap(msgspec.Struct, frozen=True, array_like=True, tag=14):
    """An empty container or a node past its TTL goes, unless it was changed since it was found."""

    path: str
    czxid: int
    mzxid: int


Command: TypeAlias = Write | OpenSession | AttachSession | CloseSession | Reap

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Command)


def encode_command(command: Command) -> bytes:
    return _encoder.encode(command)


def decode_command(data: bytes) -> Command:
    command: Command = _decoder.decode(data)
    return command
