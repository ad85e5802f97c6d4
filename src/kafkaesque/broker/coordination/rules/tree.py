"""The tree of znodes, with changes that can be undone.

There are no permission checks here: `operations.py` has the rules of requests. Times and zxids are
arguments. A node's path is its key, and a parent lists its children's names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from kafkaesque.broker.coordination.rules import acl
from kafkaesque.broker.coordination.rules.acl import Acl
from kafkaesque.broker.coordination.rules.paths import ROOT, name_of, parent_of
from kafkaesque.broker.coordination.rules.vocabulary import Code, CoordinationError
from kafkaesque.model.errors import check

CONTAINER_OWNER = -(2**63)
"""Owner of a container (EphemeralType.CONTAINER_EPHEMERAL_OWNER)."""

_TTL_MARK = 0xFF << 56
TTL_MS_MAX = (1 << 40) - 1
"""The TTL is in 40 bits of the owner (EphemeralType.TTL)."""

_ACL_ENTRY_BYTES = 8
"""Permissions and lengths."""

SYSTEM_PATHS = frozenset((ROOT, "/zookeeper", "/zookeeper/quota", "/zookeeper/config"))
"""They exist from the start and cannot be deleted."""


class TreeLimits(NamedTuple):
    """Bounds of the whole tree. They must be equal on all replicas, which would otherwise diverge."""

    nodes_max: int = 1_000_000
    size_bytes_max: int = 256 * 1024 * 1024


class Stat(NamedTuple):
    """A node's metadata as clients see it, in wire order."""

    czxid: int
    mzxid: int
    ctime_ms: int
    mtime_ms: int
    version: int
    cversion: int
    aversion: int
    ephemeral_owner: int
    data_length: int
    num_children: int
    pzxid: int


def ttl_owner(ttl_ms: int) -> int:
    """Owner of a node with a TTL, as Java's signed long."""
    return _wrap(_TTL_MARK | ttl_ms, 64)


def ttl_of(owner: int) -> int | None:
    """The TTL in milliseconds in `owner`; None if it has none."""
    unsigned = owner & (2**64 - 1)
    return unsigned & TTL_MS_MAX if unsigned >> 56 == 0xFF else None


def _wrap(value: int, bits: int) -> int:
    """Wraps into the signed range, as Java does."""
    half = 1 << (bits - 1)
    return (value + half) % (1 << bits) - half


class Znode:
    """One znode. `owner` is a session id, a mark (container, TTL) or 0."""

    __slots__ = (
        "acl",
        "aversion",
        "child_creates",
        "children",
        "ctime_ms",
        "czxid",
        "data",
        "mtime_ms",
        "mzxid",
        "owner",
        "pzxid",
        "version",
    )

    def __init__(
        self, data: bytes | None, acl: tuple[Acl, ...], owner: int, zxid: int, now_ms: int
    ) -> None:
        self.data = data
        self.acl = acl
        self.owner = owner
        self.czxid = self.mzxid = self.pzxid = zxid
        self.ctime_ms = self.mtime_ms = now_ms
        self.version = 0
        self.aversion = 0
        self.child_creates = 0
        """The number of children ever created: the next sequence number."""
        self.children: dict[str, None] = {}
        """Names in order of creation: a set that all replicas iterate in the same order."""

    @property
    def is_ephemeral(self) -> bool:
        return self.owner > 0

    @property
    def is_container(self) -> bool:
        return self.owner == CONTAINER_OWNER

    @property
    def data_length(self) -> int:
        return 0 if self.data is None else len(self.data)

    def stat(self) -> Stat:
        children = len(self.children)
        return Stat(
            self.czxid,
            self.mzxid,
            self.ctime_ms,
            self.mtime_ms,
            self.version,
            # Creates plus deletes, as in ZooKeeper since 3.0 (DataNode.copyStat): a child that was
            # created and deleted counts twice.
            _wrap(self.child_creates * 2 - children, 32),
            self.aversion,
            # Marks of containers and TTLs are not shown (DataNode.copyStat).
            max(self.owner, 0),
            self.data_length,
            children,
            self.pzxid,
        )


Undo = Callable[[], None]


class Tree:
    """All nodes by path. Each change returns its undo, for a multi that fails later."""

    __slots__ = ("_ephemerals", "_limits", "_reapable", "nodes", "size_bytes")

    def __init__(self, limits: TreeLimits, *, is_empty: bool = False) -> None:
        """Contains the system nodes, unless it `is_empty` because a snapshot contains them."""
        self._limits = limits
        self.nodes: dict[str, Znode] = {}
        self._ephemerals: dict[int, dict[str, None]] = {}
        self._reapable: dict[str, None] = {}
        """Containers and nodes with a TTL, which may be removed without a request."""
        self.size_bytes = 0
        """The total of paths, data and access lists."""
        for path in () if is_empty else sorted(SYSTEM_PATHS):
            access = acl.READ_ONLY if path == "/zookeeper/config" else acl.OPEN
            self.put(path, Znode(b"", access, 0, 0, 0))

    def get(self, path: str) -> Znode | None:
        return self.nodes.get(path)

    def require(self, path: str) -> Znode:
        node = self.nodes.get(path)
        if node is None:
            raise CoordinationError(Code.NO_NODE, path)
        return node

    def ephemerals_of(self, session_id: int) -> list[str]:
        """Paths in order of creation."""
        return list(self._ephemerals.get(session_id, ()))

    @property
    def ephemeral_count(self) -> int:
        return sum(map(len, self._ephemerals.values()))

    def reapable(self) -> Iterator[tuple[str, Znode]]:
        """Containers and nodes with a TTL, whatever their state."""
        return ((path, self.nodes[path]) for path in self._reapable)

    def descendant_count(self, path: str) -> int:
        if path == ROOT:
            return len(self.nodes) - 1
        count, waiting = 0, [path]
        while waiting:
            at = waiting.pop()
            children = self.nodes[at].children
            count += len(children)
            waiting += [f"{at}/{name}" for name in children]
        return count

    # -- changes --------------------------------------------------------------------------------

    def create(self, path: str, node: Znode) -> Undo:
        """Adds `node`, whose parent exists. Raises QUOTA_EXCEEDED if the tree is full."""
        parent = self.nodes[parent_of(path)]
        self._check_room(_size_bytes(path, node), nodes=1)
        before = parent.child_creates, parent.pzxid
        parent.child_creates = _wrap(parent.child_creates + 1, 32)
        parent.pzxid = node.czxid
        self.put(path, node)

        def undo() -> None:
            self._take(path)
            parent.child_creates, parent.pzxid = before

        return undo

    def delete(self, path: str, zxid: int) -> Undo:
        """Removes a node without children."""
        node = self._take(path)
        check(not node.children, f"{path} is deleted with children")
        parent = self.nodes[parent_of(path)]
        before = parent.pzxid
        parent.pzxid = zxid

        def undo() -> None:
            self.put(path, node)
            parent.pzxid = before

        return undo

    def set_data(self, node: Znode, data: bytes | None, zxid: int, now_ms: int) -> Undo:
        """Replaces the data. Raises QUOTA_EXCEEDED if the tree would be too large."""
        growth = (0 if data is None else len(data)) - node.data_length
        if growth > 0:
            self._check_room(growth, nodes=0)
        before = node.data, node.version, node.mzxid, node.mtime_ms
        node.data, node.mzxid, node.mtime_ms = data, zxid, now_ms
        node.version = _wrap(node.version + 1, 32)
        self.size_bytes += growth

        def undo() -> None:
            node.data, node.version, node.mzxid, node.mtime_ms = before
            self.size_bytes -= growth

        return undo

    def set_acl(self, node: Znode, acl: tuple[Acl, ...]) -> None:
        """Raises QUOTA_EXCEEDED if the tree would be too large."""
        growth = _acl_bytes(acl) - _acl_bytes(node.acl)
        if growth > 0:
            self._check_room(growth, nodes=0)
        self.size_bytes += growth
        node.acl = acl
        node.aversion = _wrap(node.aversion + 1, 32)

    def _check_room(self, growth_bytes: int, nodes: int) -> None:
        if (
            len(self.nodes) + nodes > self._limits.nodes_max
            or self.size_bytes + growth_bytes > self._limits.size_bytes_max
        ):
            raise CoordinationError(Code.QUOTA_EXCEEDED, "the tree is full")

    def put(self, path: str, node: Znode) -> None:
        """Adds `node` to all indexes; leaves the counters of its parent unchanged."""
        self.nodes[path] = node
        self.size_bytes += _size_bytes(path, node)
        if path != ROOT:
            self.nodes[parent_of(path)].children[name_of(path)] = None
        if node.is_ephemeral:
            self._ephemerals.setdefault(node.owner, {})[path] = None
        elif node.owner:
            self._reapable[path] = None

    def _take(self, path: str) -> Znode:
        node = self.nodes.pop(path)
        self.size_bytes -= _size_bytes(path, node)
        del self.nodes[parent_of(path)].children[name_of(path)]
        if node.is_ephemeral:
            owned = self._ephemerals[node.owner]
            del owned[path]
            if not owned:
                del self._ephemerals[node.owner]
        elif node.owner:
            del self._reapable[path]
        return node


def _size_bytes(path: str, node: Znode) -> int:
    return len(path.encode()) + node.data_length + _acl_bytes(node.acl)


def _acl_bytes(access: tuple[Acl, ...]) -> int:
    """OPEN, which nearly every node has, costs nothing."""
    if access is acl.OPEN:
        return 0
    return sum(_ACL_ENTRY_BYTES + len(entry.scheme) + len(entry.id.encode()) for entry in access)
