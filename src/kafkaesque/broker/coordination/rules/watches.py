"""The watches of one server's clients: set by reads, triggered by events, removed with the connection.

A watch is one-shot, persistent or persistent and recursive; one client may have several kinds on
one path, and then gets one event (WatchManager and WatchStats, 3.9).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from enum import IntFlag
from typing import Generic, NamedTuple, TypeVar

from kafkaesque.broker.coordination.rules.operations import NodeEvent
from kafkaesque.broker.coordination.rules.paths import ROOT, parent_of
from kafkaesque.broker.coordination.rules.vocabulary import AddWatchMode, EventType, WatcherType

W = TypeVar("W", bound=Hashable)


class WatchMode(IntFlag):
    ONE_SHOT = 1
    PERSISTENT = 2
    RECURSIVE = 4


ANY_MODE = WatchMode.ONE_SHOT | WatchMode.PERSISTENT | WatchMode.RECURSIVE


class WatchCounts(NamedTuple):
    watches: int
    paths: int


class _Watches(Generic[W]):
    """The watches of one aspect of the nodes: their data, or their children."""

    __slots__ = ("by_path", "by_watcher", "recursive_count")

    def __init__(self) -> None:
        self.by_path: dict[str, dict[W, WatchMode]] = {}
        self.by_watcher: dict[W, set[str]] = {}
        self.recursive_count = 0

    def add(self, path: str, watcher: W, mode: WatchMode) -> None:
        watchers = self.by_path.setdefault(path, {})
        before = watchers.get(watcher, WatchMode(0))
        watchers[watcher] = before | mode
        self.by_watcher.setdefault(watcher, set()).add(path)
        if mode & ~before & WatchMode.RECURSIVE:
            self.recursive_count += 1

    def has(self, path: str, watcher: W, mode: WatchMode) -> bool:
        """Whether there is a watch with any of these modes."""
        return bool(self.by_path.get(path, {}).get(watcher, WatchMode(0)) & mode)

    def remove(self, path: str, watcher: W, mode: WatchMode = ANY_MODE) -> bool:
        """True if there was a watch with any of these modes."""
        watchers = self.by_path.get(path, {})
        before = watchers.get(watcher, WatchMode(0))
        if not before & mode:
            return False
        if before & mode & WatchMode.RECURSIVE:
            self.recursive_count -= 1
        if before & ~mode:
            watchers[watcher] = before & ~mode
            return True
        del watchers[watcher]
        if not watchers:
            del self.by_path[path]
        paths = self.by_watcher[watcher]
        paths.discard(path)
        if not paths:
            del self.by_watcher[watcher]
        return True

    def remove_all(self, watcher: W) -> None:
        for path in tuple(self.by_watcher.get(watcher, ())):
            self.remove(path, watcher)

    def trigger(self, path: str) -> list[W]:
        """Returns the watchers of an event at `path`, and removes their one-shot watches."""
        found: dict[W, None] = {}
        for watcher, mode in tuple(self.by_path.get(path, {}).items()):
            found[watcher] = None
            if mode & WatchMode.ONE_SHOT:
                self.remove(path, watcher, WatchMode.ONE_SHOT)
        at = path
        while self.recursive_count and at != ROOT:
            at = parent_of(at)
            for watcher, mode in self.by_path.get(at, {}).items():
                if mode & WatchMode.RECURSIVE:
                    found[watcher] = None
        return list(found)


class WatchTable(Generic[W]):
    """All watches of one server. `W` identifies a connection."""

    __slots__ = ("_child", "_data")

    def __init__(self) -> None:
        self._data: _Watches[W] = _Watches()
        self._child: _Watches[W] = _Watches()

    def watch_data(self, path: str, watcher: W) -> None:
        """One-shot: the node is created, changed or deleted."""
        self._data.add(path, watcher, WatchMode.ONE_SHOT)

    def watch_children(self, path: str, watcher: W) -> None:
        """One-shot: a child is created or deleted, or the node is deleted."""
        self._child.add(path, watcher, WatchMode.ONE_SHOT)

    def add(self, path: str, watcher: W, mode: AddWatchMode) -> None:
        """Adds a persistent watch. A recursive one gets events of nodes, none of lists of children."""
        if mode is AddWatchMode.PERSISTENT_RECURSIVE:
            self._data.add(path, watcher, WatchMode.RECURSIVE)
        else:
            self._data.add(path, watcher, WatchMode.PERSISTENT)
            self._child.add(path, watcher, WatchMode.PERSISTENT)

    def has(self, path: str, watcher: W, kind: WatcherType) -> bool:
        return any(watches.has(path, watcher, mode) for watches, mode in self._of(kind))

    def remove(self, path: str, watcher: W, kind: WatcherType) -> bool:
        """True if there was one; ANY removes all kinds."""
        removed = [watches.remove(path, watcher, mode) for watches, mode in self._of(kind)]
        return any(removed)

    def remove_all(self, watcher: W) -> None:
        self._data.remove_all(watcher)
        self._child.remove_all(watcher)

    def count_of(self, watcher: W) -> int:
        """The number of watched paths of one client, children and data counted separately."""
        return len(self._data.by_watcher.get(watcher, ())) + len(
            self._child.by_watcher.get(watcher, ())
        )

    def paths(self) -> set[str]:
        """All watched paths."""
        return self._data.by_path.keys() | self._child.by_path.keys()

    def counts(self) -> WatchCounts:
        watches = sum(map(len, self._data.by_path.values()))
        watches += sum(map(len, self._child.by_path.values()))
        return WatchCounts(watches, len(self._data.by_path.keys() | self._child.by_path.keys()))

    def trigger(self, events: Iterable[NodeEvent]) -> list[tuple[W, NodeEvent]]:
        """Returns each event with its watchers, in the order of the events."""
        notified: list[tuple[W, NodeEvent]] = []
        for event in events:
            watchers: Sequence[W]
            if event.type is EventType.NODE_CHILDREN_CHANGED:
                watchers = self._child.trigger(event.path)
            else:
                watchers = self._data.trigger(event.path)
                if event.type is EventType.NODE_DELETED:
                    # A client that watches both aspects gets one event.
                    watchers = list(dict.fromkeys((*watchers, *self._child.trigger(event.path))))
            notified += [(watcher, event) for watcher in watchers]
        return notified

    def _of(self, kind: WatcherType) -> tuple[tuple[_Watches[W], WatchMode], ...]:
        match kind:
            case WatcherType.CHILDREN:
                return ((self._child, WatchMode.ONE_SHOT),)
            case WatcherType.DATA:
                return ((self._data, WatchMode.ONE_SHOT),)
            case WatcherType.ANY:
                return ((self._data, ANY_MODE), (self._child, ANY_MODE))
            case WatcherType.PERSISTENT:
                return ((self._data, WatchMode.PERSISTENT), (self._child, WatchMode.PERSISTENT))
            case WatcherType.PERSISTENT_RECURSIVE:
                return ((self._data, WatchMode.RECURSIVE),)
