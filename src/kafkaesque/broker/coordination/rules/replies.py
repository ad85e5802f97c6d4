"""The encoding of a server's messages: frames and their bodies."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import TypeAlias

from kafkaesque.broker.coordination.rules.acl import Acl, AuthIdentity
from kafkaesque.broker.coordination.rules.jute import JuteWriter
from kafkaesque.broker.coordination.rules.machine import ApplyResult, Result
from kafkaesque.broker.coordination.rules.operations import NodeEvent
from kafkaesque.broker.coordination.rules.tree import Stat
from kafkaesque.broker.coordination.rules.vocabulary import (
    STATE_SYNC_CONNECTED,
    XID_NOTIFICATION,
    Code,
    CoordinationError,
    OpCode,
)

_REPLY = struct.Struct(">iiqi")
_REPLY_HEADER_BYTES = _REPLY.size - 4
_STAT = struct.Struct(">qqqqiiiqiiq")
_PART = struct.Struct(">i?i")

_LAST_PART = _PART.pack(-1, True, -1)
_PASSWORD_BYTES = 16


def frame(body: bytes) -> bytes:
    return len(body).to_bytes(4, "big") + body


def reply(xid: int, zxid: int, code: int, body: bytes = b"") -> bytes:
    """A complete frame; `body` only if `code` is OK."""
    return _REPLY.pack(_REPLY_HEADER_BYTES + len(body), xid, zxid, code) + body


def connected(timeout_ms: int, session_id: int, password: bytes, has_read_only: bool) -> bytes:
    """The answer to ConnectRequest."""
    writer = JuteWriter()
    writer.int32(0)
    writer.int32(timeout_ms)
    writer.int64(session_id)
    writer.buffer(password)
    if has_read_only:
        writer.boolean(False)
    return frame(writer.getvalue())


def session_expired(has_read_only: bool) -> bytes:
    """The answer to a client whose session has ended."""
    return connected(0, 0, bytes(_PASSWORD_BYTES), has_read_only)


def notification(event: NodeEvent) -> bytes:
    writer = JuteWriter()
    writer.int32(event.type)
    writer.int32(STATE_SYNC_CONNECTED)
    writer.string(event.path)
    return reply(XID_NOTIFICATION, event.zxid, Code.OK, writer.getvalue())


def stat_body(stat: Stat) -> bytes:
    return _STAT.pack(*stat)


def data_body(data: bytes | None, stat: Stat) -> bytes:
    writer = JuteWriter()
    writer.buffer(data)
    writer.raw(_STAT.pack(*stat))
    return writer.getvalue()


def acl_body(acl: Sequence[Acl], stat: Stat) -> bytes:
    writer = JuteWriter()
    writer.int32(len(acl))
    for entry in acl:
        writer.int32(entry.permissions)
        writer.string(entry.scheme)
        writer.string(entry.id)
    writer.raw(_STAT.pack(*stat))
    return writer.getvalue()


def strings_body(values: Sequence[str], stat: Stat | None = None) -> bytes:
    writer = JuteWriter()
    writer.vector(values, writer.string)
    if stat is not None:
        writer.raw(_STAT.pack(*stat))
    return writer.getvalue()


def string_body(value: str) -> bytes:
    writer = JuteWriter()
    writer.string(value)
    return writer.getvalue()


def int_body(value: int) -> bytes:
    return value.to_bytes(4, "big", signed=True)


def identities_body(identities: Sequence[AuthIdentity]) -> bytes:
    writer = JuteWriter()
    writer.int32(len(identities))
    for identity in identities:
        writer.string(identity.scheme)
        user = identity.id.split(":", 1)[0] if identity.scheme == "digest" else identity.id
        writer.string(user)
    return writer.getvalue()


def outcome_body(outcome: ApplyResult, *, is_multi: bool) -> bytes:
    """The answer to a write that was applied."""
    if not is_multi:
        return _result_body(outcome.results[0]) if outcome.results else b""
    parts: list[Part] = [
        CoordinationError(result.code) if result.opcode is OpCode.ERROR
        else (result.opcode, _result_body(result))
        for result in outcome.results
    ]  # fmt: skip
    return parts_body(parts)


def _result_body(result: Result) -> bytes:
    match result.opcode:
        case OpCode.CREATE:
            return string_body(result.path)
        case OpCode.DELETE | OpCode.CHECK:
            return b""
    writer = JuteWriter()
    if result.opcode in (OpCode.CREATE2, OpCode.CREATE_CONTAINER, OpCode.CREATE_TTL):
        writer.string(result.path)
    if result.stat is not None:
        writer.raw(_STAT.pack(*result.stat))
    return writer.getvalue()


Part: TypeAlias = tuple[OpCode, bytes] | CoordinationError


def parts_body(parts: Sequence[Part]) -> bytes:
    """The answer to a multi: each part's operation and body, or its error."""
    writer = JuteWriter()
    for part in parts:
        if isinstance(part, CoordinationError):
            writer.raw(_PART.pack(OpCode.ERROR, False, part.code))
            writer.int32(part.code)
        else:
            writer.raw(_PART.pack(part[0], False, Code.OK))
            writer.raw(part[1])
    writer.raw(_LAST_PART)
    return writer.getvalue()
