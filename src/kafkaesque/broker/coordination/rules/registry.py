"""Read-only nodes that show external state, such as the cluster's brokers and topics.

They are beside the tree, under names of their own, and not in the log: each server computes them
and notifies its own clients of changes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from kafkaesque.broker.coordination.rules.acl import READ_ONLY
from kafkaesque.broker.coordination.rules.operations import NodeEvent
from kafkaesque.broker.coordination.rules.paths import ROOT, parent_of
from kafkaesque.broker.coordination.rules.tree import Tree, TreeLimits, Znode
from kafkaesque.broker.coordination.rules.vocabulary import EventType

REGISTRY_NAMES: Final = frozenset(
    ("brokers", "cluster", "consumers", "controller", "controller_epoch")
)
"""The children of the root that are registries; Kafka's names."""

_NO_LIMITS = TreeLimits(nodes_max=1 << 62, size_bytes_max=1 << 62)


class Leaf(NamedTuple):
    data: bytes
    owner: int = 0
    """Of an ephemeral node: a number that identifies its owner."""


def is_registry(path: str) -> bool:
    """Whether the node is, or would be, in a registry."""
    return path.split("/", 2)[1] in REGISTRY_NAMES if "/" in path else False


class RegistryTree:
    """`tree` has its own root, and below it what was last shown."""

    __slots__ = ("tree",)

    def __init__(self) -> None:
        self.tree = Tree(_NO_LIMITS, is_empty=True)
        self.tree.put(ROOT, Znode(b"", READ_ONLY, 0, 0, 0))

    def show(
        self, name: str, leaves: Mapping[str, Leaf], zxid: int, now_ms: int
    ) -> list[NodeEvent]:
        """Makes `leaves` and their parents the content of /`name`. Returns the events."""
        top = f"/{name}"
        wanted = dict(leaves)
        for path in leaves:
            while (path := parent_of(path)) != ROOT:
                wanted.setdefault(path, Leaf(b""))
        present = self._below(top)
        events: list[NodeEvent] = []
        for path in sorted(present - wanted.keys(), key=lambda path: (-len(path), path)):
            self._remove(path, zxid, events)
        for path in sorted(wanted, key=len):
            self._put(path, wanted[path], zxid, now_ms, events)
        return events

    def _below(self, top: str) -> set[str]:
        if self.tree.get(top) is None:
            return set()
        return {path for path in self.tree.nodes if path == top or path.startswith(f"{top}/")}

    def _remove(self, path: str, zxid: int, events: list[NodeEvent]) -> None:
        self.tree.delete(path, zxid)
        events.append(NodeEvent(EventType.NODE_DELETED, path, zxid, READ_ONLY))
        events.append(_children_changed(path, zxid))

    def _put(self, path: str, leaf: Leaf, zxid: int, now_ms: int, events: list[NodeEvent]) -> None:
        node = self.tree.get(path)
        if node is None:
            self.tree.create(path, Znode(leaf.data, READ_ONLY, leaf.owner, zxid, now_ms))
            events.append(NodeEvent(EventType.NODE_CREATED, path, zxid, READ_ONLY))
            events.append(_children_changed(path, zxid))
        elif node.data != leaf.data:
            self.tree.set_data(node, leaf.data, zxid, now_ms)
            events.append(NodeEvent(EventType.NODE_DATA_CHANGED, path, zxid, READ_ONLY))


def _children_changed(path: str, zxid: int) -> NodeEvent:
    return NodeEvent(EventType.NODE_CHILDREN_CHANGED, parent_of(path), zxid, READ_ONLY)


def touches_registry(paths: Iterable[str]) -> bool:
    """Whether an answer about any of `paths` depends on the registries; the root lists them."""
    return any(path in ("", ROOT) or is_registry(path) for path in paths)
