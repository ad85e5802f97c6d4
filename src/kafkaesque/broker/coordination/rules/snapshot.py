"""The encoding of a snapshot: every node and session of the machine at one zxid.

MessagePack arrays; nodes with parents first and in the order in which children are listed, so that a
restored tree lists them in the same order. The first field is the version of the format.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from kafkaesque.broker.coordination.rules.acl import OPEN, Acl
from kafkaesque.broker.coordination.rules.sessions import ClientSession
from kafkaesque.broker.coordination.rules.tree import Tree, TreeLimits, Znode
from kafkaesque.model.errors import check

FORMAT = 1


class Image(NamedTuple):
    """The state of a machine."""

    zxid: int
    tree: Tree
    sessions: dict[int, ClientSession]


class _NodeRecord(NamedTuple):
    path: str
    data: bytes | None
    acl: tuple[Acl, ...]
    """Empty for OPEN, which nearly every node has."""
    owner: int
    czxid: int
    mzxid: int
    pzxid: int
    ctime_ms: int
    mtime_ms: int
    version: int
    aversion: int
    child_creates: int


class _SessionRecord(NamedTuple):
    session_id: int
    password: bytes
    timeout_ms: int
    owner: int
    next_sequence: int


class _Snapshot(msgspec.Struct, frozen=True, array_like=True):
    format: int
    zxid: int
    nodes: list[_NodeRecord]
    sessions: list[_SessionRecord]


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(_Snapshot)


def encode_image(image: Image) -> bytes:
    return _encoder.encode(
        _Snapshot(
            FORMAT,
            image.zxid,
            [_node_record(path, node) for path, node in image.tree.nodes.items()],
            [
                _SessionRecord(s.session_id, s.password, s.timeout_ms, s.owner, s.next_sequence)
                for s in image.sessions.values()
            ],
        )
    )


def decode_image(data: bytes, limits: TreeLimits) -> Image:
    """Decodes what `encode_image` wrote; raises msgspec.DecodeError for anything else."""
    snapshot = _decoder.decode(data)
    check(snapshot.format == FORMAT, f"a snapshot of format {snapshot.format}")
    tree = Tree(limits, is_empty=True)
    for record in snapshot.nodes:
        tree.put(record.path, _node(record))
    sessions: dict[int, ClientSession] = {}
    for session_id, password, timeout_ms, owner, next_sequence in snapshot.sessions:
        session = ClientSession(session_id, password, timeout_ms, owner)
        session.next_sequence = next_sequence
        sessions[session_id] = session
    return Image(snapshot.zxid, tree, sessions)


def _node_record(path: str, node: Znode) -> _NodeRecord:
    return _NodeRecord(
        path,
        node.data,
        () if node.acl is OPEN else node.acl,
        node.owner,
        node.czxid,
        node.mzxid,
        node.pzxid,
        node.ctime_ms,
        node.mtime_ms,
        node.version,
        node.aversion,
        node.child_creates,
    )


def _node(record: _NodeRecord) -> Znode:
    node = Znode(record.data, record.acl or OPEN, record.owner, record.czxid, record.ctime_ms)
    node.mzxid = record.mzxid
    node.pzxid = record.pzxid
    node.mtime_ms = record.mtime_ms
    node.version = record.version
    node.aversion = record.aversion
    node.child_creates = record.child_creates
    return node
