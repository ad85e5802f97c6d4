"""Answers reads from this server's state, and sets their watches.

Source: FinalRequestProcessor and DataTree (3.9). As there, the empty path reads the root.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, NamedTuple, TypeVar

from kafkaesque.broker.coordination.rules import acl, replies
from kafkaesque.broker.coordination.rules.acl import AuthIdentity
from kafkaesque.broker.coordination.rules.machine import Machine
from kafkaesque.broker.coordination.rules.operations import NodeEvent
from kafkaesque.broker.coordination.rules.paths import ROOT
from kafkaesque.broker.coordination.rules.registry import RegistryTree, is_registry
from kafkaesque.broker.coordination.rules.requests import (
    AddWatch,
    CheckWatches,
    Exists,
    GetAcl,
    GetAllChildrenNumber,
    GetChildren,
    GetData,
    GetEphemerals,
    MultiRead,
    Query,
    RemoveWatches,
    SetWatches,
    WhoAmI,
)
from kafkaesque.broker.coordination.rules.tree import Stat, Znode
from kafkaesque.broker.coordination.rules.vocabulary import (
    AddWatchMode,
    Code,
    CoordinationError,
    EventType,
    OpCode,
    Permission,
    WatcherType,
)
from kafkaesque.broker.coordination.rules.watches import WatchTable

WATCHES_PER_CLIENT_MAX = 500_000
"""Enough for a TreeCache of the largest tree; beyond it QUOTA_EXCEEDED."""

W = TypeVar("W", bound=Hashable)


class QueryContext(NamedTuple, Generic[W]):
    """The reading client and the state that it reads."""

    machine: Machine
    watches: WatchTable[W]
    watcher: W
    session_id: int
    identities: tuple[AuthIdentity, ...]
    registry: RegistryTree | None = None

    def find(self, path: str) -> Znode | None:
        if self.registry is not None and is_registry(path):
            return self.registry.tree.get(path)
        return self.machine.tree.get(path or ROOT)

    def children(self, path: str, node: Znode) -> list[str]:
        """The root contains the registries too."""
        children = list(node.children)
        if self.registry is not None and path in ("", ROOT):
            children += self.registry.tree.require(ROOT).children
        return children

    def stat(self, path: str, node: Znode) -> Stat:
        stat = node.stat()
        if self.registry is not None and path in ("", ROOT):
            return stat._replace(num_children=len(self.children(path, node)))
        return stat

    def descendant_count(self, path: str) -> int:
        if self.registry is not None and is_registry(path):
            return self.registry.tree.descendant_count(path)
        count = self.machine.tree.descendant_count(path or ROOT)
        if self.registry is not None and path in ("", ROOT):
            count += self.registry.tree.descendant_count(ROOT)
        return count


class QueryAnswer(NamedTuple):
    """A reply's body, and missed events that the client must see before it."""

    body: bytes
    missed: tuple[NodeEvent, ...] = ()


def answer(reader: QueryContext[W], query: Query) -> QueryAnswer:
    """Raises CoordinationError where ZooKeeper returns an error; then no watch is set."""
    match query:
        case Exists():
            return QueryAnswer(_exists(reader, query))
        case GetData():
            return QueryAnswer(_get_data(reader, query))
        case GetChildren():
            return QueryAnswer(_get_children(reader, query))
        case GetAcl():
            return QueryAnswer(_get_acl(reader, query))
        case GetEphemerals(prefix):
            owned = reader.machine.tree.ephemerals_of(reader.session_id)
            return QueryAnswer(replies.strings_body([p for p in owned if p.startswith(prefix)]))
        case GetAllChildrenNumber(path):
            _readable(reader, path)
            return QueryAnswer(replies.int_body(reader.descendant_count(path)))
        case MultiRead():
            return QueryAnswer(_multi_read(reader, query))
        case SetWatches():
            return QueryAnswer(b"", _set_watches(reader, query))
        case AddWatch(path, mode):
            _check_room(reader)
            reader.watches.add(path, reader.watcher, _enum(AddWatchMode, mode))
            return QueryAnswer(replies.int_body(Code.OK))
        case RemoveWatches(path, kind):
            if not reader.watches.remove(path, reader.watcher, _enum(WatcherType, kind)):
                raise CoordinationError(Code.NO_WATCHER, path)
            return QueryAnswer(b"")
        case CheckWatches(path, kind):
            if not reader.watches.has(path, reader.watcher, _enum(WatcherType, kind)):
                raise CoordinationError(Code.NO_WATCHER, path)
            return QueryAnswer(b"")
        case WhoAmI():
            return QueryAnswer(replies.identities_body(reader.identities))


E = TypeVar("E", AddWatchMode, WatcherType)


def _enum(kind: type[E], value: int) -> E:
    try:
        return kind(value)
    except ValueError:
        # ZooKeeper fails while it decodes such a number.
        raise CoordinationError(Code.MARSHALLING_ERROR, f"{kind.__name__} {value}") from None


def _check_room(reader: QueryContext[W], wanted: int = 1) -> None:
    if reader.watches.count_of(reader.watcher) + wanted > WATCHES_PER_CLIENT_MAX:
        raise CoordinationError(Code.QUOTA_EXCEEDED, "too many watches")


def _readable(
    reader: QueryContext[W], path: str, permission: Permission = Permission.READ
) -> Znode:
    node = reader.find(path)
    if node is None:
        raise CoordinationError(Code.NO_NODE, path)
    acl.require(node.acl, permission, reader.identities)
    return node


def _exists(reader: QueryContext[W], query: Exists) -> bytes:
    if "\x00" in query.path:
        raise CoordinationError(Code.BAD_ARGUMENTS, "a null character")
    node = reader.find(query.path)
    if node is not None:
        acl.require(node.acl, Permission.READ, reader.identities)
    if query.watch:
        _check_room(reader)
        # Also if there is no node: that is how a client waits for one.
        reader.watches.watch_data(query.path, reader.watcher)
    if node is None:
        raise CoordinationError(Code.NO_NODE, query.path)
    return replies.stat_body(reader.stat(query.path, node))


def _get_data(reader: QueryContext[W], query: GetData) -> bytes:
    node = _readable(reader, query.path)
    if query.watch:
        _check_room(reader)
        reader.watches.watch_data(query.path, reader.watcher)
    return replies.data_body(node.data, reader.stat(query.path, node))


def _get_children(reader: QueryContext[W], query: GetChildren) -> bytes:
    node = _readable(reader, query.path)
    if query.watch:
        _check_room(reader)
        reader.watches.watch_children(query.path, reader.watcher)
    return replies.strings_body(
        reader.children(query.path, node),
        reader.stat(query.path, node) if query.with_stat else None,
    )


def _get_acl(reader: QueryContext[W], query: GetAcl) -> bytes:
    node = _readable(reader, query.path, Permission.READ | Permission.ADMIN)
    shown = node.acl
    if not acl.allows(node.acl, Permission.ADMIN, reader.identities):
        shown = acl.redact(node.acl)
    return replies.acl_body(shown, reader.stat(query.path, node))


def _multi_read(reader: QueryContext[W], query: MultiRead) -> bytes:
    parts: list[replies.Part] = []
    for part in query.parts:
        try:
            if isinstance(part, GetData):
                parts.append((OpCode.GET_DATA, _get_data(reader, part)))
            else:
                parts.append((OpCode.GET_CHILDREN, _get_children(reader, part)))
        except CoordinationError as error:
            parts.append(error)
    return replies.parts_body(parts)


def _set_watches(reader: QueryContext[W], query: SetWatches) -> tuple[NodeEvent, ...]:
    """Restores the watches of a broken connection; events missed meanwhile are returned."""
    _check_room(reader, sum(map(len, query[1:])))
    watches, watcher, since = reader.watches, reader.watcher, query.relative_zxid
    missed: list[NodeEvent] = []

    def add_missed(event: EventType, path: str, node: Znode | None) -> None:
        missed.append(NodeEvent(event, path, reader.machine.zxid, node.acl if node else ()))

    for path in query.data:
        node = reader.find(path)
        if node is None:
            add_missed(EventType.NODE_DELETED, path, None)
        elif node.mzxid > since or _is_of_unknown_age(reader, path):
            add_missed(EventType.NODE_DATA_CHANGED, path, node)
        else:
            watches.watch_data(path, watcher)
    for path in query.exist:
        node = reader.find(path)
        if node is not None:
            add_missed(EventType.NODE_CREATED, path, node)
        else:
            watches.watch_data(path, watcher)
    for path in query.child:
        node = reader.find(path)
        if node is None:
            add_missed(EventType.NODE_DELETED, path, None)
        elif node.pzxid > since or _is_of_unknown_age(reader, path):
            add_missed(EventType.NODE_CHILDREN_CHANGED, path, node)
        else:
            watches.watch_children(path, watcher)
    for path in query.persistent:
        watches.add(path, watcher, AddWatchMode.PERSISTENT)
    for path in query.recursive:
        watches.add(path, watcher, AddWatchMode.PERSISTENT_RECURSIVE)
    return tuple(missed)


def _is_of_unknown_age(reader: QueryContext[W], path: str) -> bool:
    """Each server assigns its own zxids to registry nodes: whether one has changed since the client
    was on another server is unknown, and an extra event does no harm."""
    return reader.registry is not None and is_registry(path)


def paths_of(query: Query) -> tuple[str, ...]:
    """The paths that a query reads."""
    match query:
        case Exists(path) | GetData(path) | GetAcl(path) | GetAllChildrenNumber(path):
            return (path,)
        case GetChildren(path) | AddWatch(path):
            return (path,)
        case MultiRead(parts):
            return tuple(part.path for part in parts)
        case SetWatches():
            return (*query.data, *query.exist, *query.child)
        case _:
            return ()
