"""The requests that change the tree, with checks in ZooKeeper's order.

Source: PrepRequestProcessor (3.9). Each operation either changes the tree and returns what happened
and how to undo it, or raises CoordinationError and leaves the tree unchanged.
"""

from __future__ import annotations

from typing import NamedTuple

from kafkaesque.broker.coordination.rules import acl
from kafkaesque.broker.coordination.rules.acl import Acl, AuthIdentity
from kafkaesque.broker.coordination.rules.commands import (
    Check,
    Create,
    Delete,
    MultiPart,
    SetAcl,
    SetData,
)
from kafkaesque.broker.coordination.rules.paths import check_parent_of, check_path, parent_of
from kafkaesque.broker.coordination.rules.tree import (
    CONTAINER_OWNER,
    SYSTEM_PATHS,
    TTL_MS_MAX,
    Stat,
    Tree,
    Undo,
    Znode,
    ttl_owner,
)
from kafkaesque.broker.coordination.rules.vocabulary import (
    Code,
    CoordinationError,
    CreateMode,
    EventType,
    OpCode,
    Permission,
)

ANY_VERSION = -1


class NodeEvent(NamedTuple):
    """A change of a node, for watchers that may read it."""

    type: EventType
    path: str
    zxid: int
    acl: tuple[Acl, ...]


class Author(NamedTuple):
    """The session that changes the tree, and the time."""

    session_id: int
    identities: tuple[AuthIdentity, ...]
    zxid: int
    now_ms: int


class TreeChange(NamedTuple):
    """The effect of an operation. `path` and `stat` are for its answer."""

    opcode: OpCode
    path: str = ""
    stat: Stat | None = None
    events: tuple[NodeEvent, ...] = ()
    undo: Undo | None = None


def perform(tree: Tree, operation: MultiPart | SetAcl, author: Author) -> TreeChange:
    match operation:
        case Create():
            return create(tree, operation, author)
        case Delete():
            return delete(tree, operation, author)
        case SetData():
            return set_data(tree, operation, author)
        case SetAcl():
            return set_acl(tree, operation, author)
        case Check():
            return check_version(tree, operation, author)


def create(tree: Tree, request: Create, author: Author) -> TreeChange:
    mode = _mode_of(request)
    parent_path = check_parent_of(request.path)
    access = acl.settle(request.acl, author.identities)
    parent = tree.require(parent_path)
    acl.require(parent.acl, Permission.CREATE, author.identities)
    path = request.path
    if mode.is_sequential:
        path += f"{parent.child_creates:010d}"
    check_path(path)
    if tree.get(path) is not None:
        raise CoordinationError(Code.NODE_EXISTS, path)
    if parent.is_ephemeral:
        raise CoordinationError(Code.NO_CHILDREN_FOR_EPHEMERALS, parent_path)
    owner = 0
    if mode.is_ephemeral:
        owner = author.session_id
    elif mode is CreateMode.CONTAINER:
        owner = CONTAINER_OWNER
    elif mode.has_ttl:
        owner = ttl_owner(request.ttl_ms)
    node = Znode(request.data, access, owner, author.zxid, author.now_ms)
    undo = tree.create(path, node)
    events = (
        NodeEvent(EventType.NODE_CREATED, path, author.zxid, node.acl),
        NodeEvent(EventType.NODE_CHILDREN_CHANGED, parent_path, author.zxid, parent.acl),
    )
    return TreeChange(OpCode(request.opcode), path, node.stat(), events, undo)


def _mode_of(request: Create) -> CreateMode:
    try:
        mode = CreateMode(request.mode)
    except ValueError:
        raise CoordinationError(Code.BAD_ARGUMENTS, f"create mode {request.mode}") from None
    if mode.has_ttl and not 0 < request.ttl_ms <= TTL_MS_MAX:
        raise CoordinationError(Code.BAD_ARGUMENTS, f"a TTL of {request.ttl_ms} ms")
    if request.opcode == OpCode.CREATE_TTL and not mode.has_ttl:
        raise CoordinationError(Code.BAD_ARGUMENTS, "a TTL for a create mode without one")
    return mode


def delete(tree: Tree, request: Delete, author: Author) -> TreeChange:
    path = request.path
    parent_path = check_parent_of(path)
    if path in SYSTEM_PATHS:
        raise CoordinationError(Code.BAD_ARGUMENTS, f"{path} cannot be deleted")
    parent = tree.require(parent_path)
    node = tree.require(path)
    acl.require(parent.acl, Permission.DELETE, author.identities)
    _require_version(node.version, request.version)
    if node.children:
        raise CoordinationError(Code.NOT_EMPTY, path)
    return remove(tree, path, node, author.zxid)


def remove(tree: Tree, path: str, node: Znode, zxid: int) -> TreeChange:
    """Deletes a node without checks."""
    undo = tree.delete(path, zxid)
    parent_path = parent_of(path)
    parent = tree.require(parent_path)
    events = (
        NodeEvent(EventType.NODE_DELETED, path, zxid, node.acl),
        NodeEvent(EventType.NODE_CHILDREN_CHANGED, parent_path, zxid, parent.acl),
    )
    return TreeChange(OpCode.DELETE, path, None, events, undo)


def set_data(tree: Tree, request: SetData, author: Author) -> TreeChange:
    check_path(request.path)
    node = tree.require(request.path)
    acl.require(node.acl, Permission.WRITE, author.identities)
    _require_version(node.version, request.version)
    undo = tree.set_data(node, request.data, author.zxid, author.now_ms)
    events = (NodeEvent(EventType.NODE_DATA_CHANGED, request.path, author.zxid, node.acl),)
    return TreeChange(OpCode.SET_DATA, request.path, node.stat(), events, undo)


def set_acl(tree: Tree, request: SetAcl, author: Author) -> TreeChange:
    check_path(request.path)
    access = acl.settle(request.acl, author.identities)
    node = tree.require(request.path)
    acl.require(node.acl, Permission.ADMIN, author.identities)
    _require_version(node.aversion, request.version)
    tree.set_acl(node, access)
    return TreeChange(OpCode.SET_ACL, request.path, node.stat())


def check_version(tree: Tree, request: Check, author: Author) -> TreeChange:
    check_path(request.path)
    node = tree.require(request.path)
    acl.require(node.acl, Permission.READ, author.identities)
    _require_version(node.version, request.version)
    return TreeChange(OpCode.CHECK, request.path, node.stat())


def _require_version(current: int, expected: int) -> None:
    if expected not in (ANY_VERSION, current):
        raise CoordinationError(Code.BAD_VERSION, f"{expected} expected, {current} found")
