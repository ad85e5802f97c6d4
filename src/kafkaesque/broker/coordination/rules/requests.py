"""The requests of clients and their decoding: connect, then requests by operation.

Writes are decoded directly into the operations of the log (`commands.py`). Decoding raises
ProtocolError for malformed bytes and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple, TypeAlias

from kafkaesque.broker.coordination.rules.acl import Acl
from kafkaesque.broker.coordination.rules.commands import (
    Check,
    Create,
    Delete,
    Multi,
    MultiPart,
    Operation,
    SetAcl,
    SetData,
)
from kafkaesque.broker.coordination.rules.jute import JuteReader
from kafkaesque.broker.coordination.rules.vocabulary import OpCode
from kafkaesque.model.errors import ProtocolError

MULTI_PARTS_MAX = 10_000
"""The most operations of a multi: bounds how long applying it delays others."""

_ACL_BYTES_MIN = 12
_STRING_BYTES_MIN = 4


class ConnectRequest(NamedTuple):
    """The first frame of a connection. Session id 0 requests a new session."""

    protocol_version: int
    last_zxid_seen: int
    timeout_ms: int
    session_id: int
    password: bytes
    has_read_only: bool
    """Clients since 3.4 append a flag, and expect one at the end of the answer."""


class Exists(NamedTuple):
    path: str
    watch: bool


class GetData(NamedTuple):
    path: str
    watch: bool


class GetAcl(NamedTuple):
    path: str


class GetChildren(NamedTuple):
    path: str
    watch: bool
    with_stat: bool


class GetEphemerals(NamedTuple):
    prefix: str


class GetAllChildrenNumber(NamedTuple):
    path: str


class MultiRead(NamedTuple):
    parts: tuple[GetData | GetChildren, ...]


class SetWatches(NamedTuple):
    """The watches of a client when its connection broke, and the last zxid it has seen."""

    relative_zxid: int
    data: list[str]
    exist: list[str]
    child: list[str]
    persistent: list[str]
    recursive: list[str]


class AddWatch(NamedTuple):
    path: str
    mode: int


class RemoveWatches(NamedTuple):
    path: str
    kind: int


class CheckWatches(NamedTuple):
    path: str
    kind: int


class WhoAmI(NamedTuple):
    pass


class Sync(NamedTuple):
    path: str


class PingRequest(NamedTuple):
    pass


class AuthRequest(NamedTuple):
    scheme: str
    secret: bytes


class CloseRequest(NamedTuple):
    pass


class Reconfig(NamedTuple):
    pass


Query: TypeAlias = (
    Exists
    | GetData
    | GetAcl
    | GetChildren
    | GetEphemerals
    | GetAllChildrenNumber
    | MultiRead
    | SetWatches
    | AddWatch
    | RemoveWatches
    | CheckWatches
    | WhoAmI
)
Request: TypeAlias = Operation | Query | Sync | PingRequest | AuthRequest | CloseRequest | Reconfig


def read_connect(frame: bytes) -> ConnectRequest:
    reader = JuteReader(frame)
    version, zxid, timeout_ms = reader.int32(), reader.int64(), reader.int32()
    session_id, password = reader.int64(), reader.buffer()
    has_read_only = reader.remaining_bytes > 0
    return ConnectRequest(version, zxid, timeout_ms, session_id, password or b"", has_read_only)


def read_request(opcode: OpCode, reader: JuteReader) -> Request | None:
    """Decodes the body after a request's header; None for an operation that clients may not send."""
    read = _READERS.get(opcode)
    return None if read is None else read(reader)


def _acl(reader: JuteReader) -> tuple[Acl, ...]:
    def entry() -> Acl:
        # Null is no identity: the list is then rejected as a list, not as malformed bytes.
        return Acl(reader.int32(), reader.optional_string() or "", reader.optional_string() or "")

    return tuple(reader.vector(entry, _ACL_BYTES_MIN))


def _create(opcode: OpCode) -> Callable[[JuteReader], Create]:
    def read(reader: JuteReader) -> Create:
        path, data, acl, mode = reader.string(), reader.buffer(), _acl(reader), reader.int32()
        ttl_ms = reader.int64() if opcode is OpCode.CREATE_TTL else 0
        return Create(path, data, acl, mode, int(opcode), ttl_ms)

    return read


def _delete(reader: JuteReader) -> Delete:
    return Delete(reader.string(), reader.int32())


def _set_data(reader: JuteReader) -> SetData:
    return SetData(reader.string(), reader.buffer(), reader.int32())


def _set_acl(reader: JuteReader) -> SetAcl:
    return SetAcl(reader.string(), _acl(reader), reader.int32())


def _check(reader: JuteReader) -> Check:
    return Check(reader.string(), reader.int32())


def _multi(reader: JuteReader) -> Multi:
    parts: list[MultiPart] = []
    while (opcode := _part_opcode(reader, len(parts))) is not None:
        match opcode:
            case OpCode.DELETE:
                parts.append(_delete(reader))
            case OpCode.SET_DATA:
                parts.append(_set_data(reader))
            case OpCode.CHECK:
                parts.append(_check(reader))
            case OpCode.CREATE | OpCode.CREATE2 | OpCode.CREATE_TTL | OpCode.CREATE_CONTAINER:
                parts.append(_create(OpCode(opcode))(reader))
            case _:
                raise ProtocolError(f"operation {opcode} in a multi")
    return Multi(tuple(parts))


def _multi_read(reader: JuteReader) -> MultiRead:
    parts: list[GetData | GetChildren] = []
    while (opcode := _part_opcode(reader, len(parts))) is not None:
        if opcode == OpCode.GET_DATA:
            parts.append(GetData(reader.string(), reader.boolean()))
        elif opcode == OpCode.GET_CHILDREN:
            parts.append(GetChildren(reader.string(), reader.boolean(), False))
        else:
            raise ProtocolError(f"operation {opcode} in a multi that reads")
    return MultiRead(tuple(parts))


def _part_opcode(reader: JuteReader, count: int) -> int | None:
    """A MultiHeader: the operation that follows; None at the end."""
    opcode, is_done, _ = reader.int32(), reader.boolean(), reader.int32()
    if is_done:
        return None
    if count >= MULTI_PARTS_MAX:
        raise ProtocolError(f"a multi of more than {MULTI_PARTS_MAX} operations")
    return opcode


def _strings(reader: JuteReader) -> list[str]:
    return reader.vector(reader.string, _STRING_BYTES_MIN)


def _set_watches(reader: JuteReader) -> SetWatches:
    zxid = reader.int64()
    return SetWatches(zxid, _strings(reader), _strings(reader), _strings(reader), [], [])


def _set_watches2(reader: JuteReader) -> SetWatches:
    zxid = reader.int64()
    lists = [_strings(reader) for _ in range(5)]
    return SetWatches(zxid, lists[0], lists[1], lists[2], lists[3], lists[4])


def _auth(reader: JuteReader) -> AuthRequest:
    reader.int32()  # `type`, always 0 and never used
    return AuthRequest(reader.optional_string() or "", reader.buffer() or b"")


_READERS: Final[dict[OpCode, Callable[[JuteReader], Request]]] = {
    OpCode.CREATE: _create(OpCode.CREATE),
    OpCode.CREATE2: _create(OpCode.CREATE2),
    OpCode.CREATE_CONTAINER: _create(OpCode.CREATE_CONTAINER),
    OpCode.CREATE_TTL: _create(OpCode.CREATE_TTL),
    OpCode.DELETE: _delete,
    OpCode.SET_DATA: _set_data,
    OpCode.SET_ACL: _set_acl,
    OpCode.MULTI: _multi,
    OpCode.MULTI_READ: _multi_read,
    OpCode.EXISTS: lambda reader: Exists(reader.string(), reader.boolean()),
    OpCode.GET_DATA: lambda reader: GetData(reader.string(), reader.boolean()),
    OpCode.GET_ACL: lambda reader: GetAcl(reader.string()),
    OpCode.GET_CHILDREN: lambda r: GetChildren(r.string(), r.boolean(), with_stat=False),
    OpCode.GET_CHILDREN2: lambda r: GetChildren(r.string(), r.boolean(), with_stat=True),
    OpCode.GET_EPHEMERALS: lambda reader: GetEphemerals(reader.optional_string() or ""),
    OpCode.GET_ALL_CHILDREN_NUMBER: lambda reader: GetAllChildrenNumber(reader.string()),
    OpCode.SYNC: lambda reader: Sync(reader.string()),
    OpCode.PING: lambda reader: PingRequest(),
    OpCode.AUTH: _auth,
    OpCode.SET_WATCHES: _set_watches,
    OpCode.SET_WATCHES2: _set_watches2,
    OpCode.ADD_WATCH: lambda reader: AddWatch(reader.string(), reader.int32()),
    OpCode.REMOVE_WATCHES: lambda reader: RemoveWatches(reader.string(), reader.int32()),
    OpCode.CHECK_WATCHES: lambda reader: CheckWatches(reader.string(), reader.int32()),
    OpCode.WHO_AM_I: lambda reader: WhoAmI(),
    OpCode.RECONFIG: lambda reader: Reconfig(),
    OpCode.CLOSE_SESSION: lambda reader: CloseRequest(),
}
