"""Reads the coordination tree (ours or a real ZooKeeper's) by kazoo, in a thread of its own."""

from __future__ import annotations

import asyncio
import concurrent.futures
import time
from collections.abc import Callable
from typing import Any, Final, TypeVar

from kazoo.client import KazooClient
from kazoo.exceptions import KazooException, NoAuthError, NoNodeError
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.retry import KazooRetry

from kafkaesque.console.decoding.detection import printable
from kafkaesque.console.rules.view import Document

CONNECT_SECONDS_MAX: Final = 5.0
CHILDREN_SHOWN_MAX: Final = 500
NODES_WALKED_MAX: Final = 3000
NOT_WALKED: Final = ("/brokers/topics", "/consumers", "/zookeeper")
"""Large subtrees without ephemeral nodes; topics and groups have their own pages."""
SESSIONS_EVERY_S: Final = 10.0
"""Walking the tree is too expensive to repeat for every page view."""
DATA_SHOWN_MAX: Final = 16_384

T = TypeVar("T")


class CoordinationReadFailed(Exception):
    """The tree cannot be read; the message gives the reason."""


class NoSuchNode(CoordinationReadFailed):
    """The node does not exist."""


class CoordinationReader:
    """A read-only client. `is_present` is False if the console has no coordination address."""

    def __init__(self, hosts: str | None) -> None:
        self.hosts = hosts
        self._client: KazooClient | None = None
        self._sessions: list[Document] = []
        self._walk_again_s = 0.0
        self._thread = concurrent.futures.ThreadPoolExecutor(1, thread_name_prefix="coordination")

    @property
    def is_present(self) -> bool:
        return self.hosts is not None

    async def node(self, path: str) -> Document:
        """A node with its data and children."""
        return await self._call(lambda client: _node_document(client, path))

    async def sessions(self) -> list[Document]:
        """Sessions that own ephemeral nodes, from the last walk over a bounded number of nodes."""
        if time.monotonic() >= self._walk_again_s:
            self._walk_again_s = time.monotonic() + SESSIONS_EVERY_S
            self._sessions = await self._call(_session_rows)
        return self._sessions

    async def children_data(self, path: str) -> dict[str, bytes]:
        """The data of each child of `path` by name; empty if the node does not exist."""
        try:
            return await self._call(lambda client: _children_data(client, path))
        except NoSuchNode:
            return {}

    async def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await asyncio.get_running_loop().run_in_executor(self._thread, _stop, client)
        self._thread.shutdown(wait=False, cancel_futures=True)

    async def _call(self, work: Callable[[KazooClient], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._work, work)

    def _work(self, work: Callable[[KazooClient], T]) -> T:
        """Runs in the thread, because connecting blocks. Connects if necessary."""
        if self.hosts is None:
            raise CoordinationReadFailed("the console was started without --coordination")
        try:
            if self._client is None:
                retry = KazooRetry(max_tries=1)
                client = KazooClient(self.hosts, timeout=10.0, connection_retry=retry,
                                     command_retry=retry, read_only=False)  # fmt: skip
                client.start(timeout=CONNECT_SECONDS_MAX)
                self._client = client
            return work(self._client)
        except NoNodeError:
            raise NoSuchNode("the node does not exist") from None
        except (KazooException, KazooTimeoutError, OSError, ValueError) as error:
            client, self._client = self._client, None
            if client is not None:
                _stop(client)
            reason = str(error) or type(error).__name__
            raise CoordinationReadFailed(f"{self.hosts} does not answer: {reason}") from None


def _stop(client: KazooClient) -> None:
    client.stop()
    client.close()


def session_name(owner: int) -> str | None:
    """A session id as ZooKeeper's own tools print it."""
    return f"{owner & (2**64 - 1):#x}" if owner else None


def _text(data: bytes | None) -> str:
    shown = (data or b"")[:DATA_SHOWN_MAX]
    text = printable(shown)
    return shown.hex(" ") if text is None else text


def _row(path: str, stat: Any) -> Document:
    return {
        "path": path,
        "name": path.rpartition("/")[2] or "/",
        "children": stat.numChildren,
        "size_bytes": stat.dataLength,
        "version": stat.version,
        "created_ms": stat.ctime,
        "modified_ms": stat.mtime,
        "session": session_name(stat.ephemeralOwner),
    }


def _join(path: str, name: str) -> str:
    return f"{path.rstrip('/')}/{name}"


def _stats(client: KazooClient, paths: list[str]) -> list[Any]:
    """The stats of many nodes, pipelined into one round trip instead of hundreds."""
    asked = [client.exists_async(path) for path in paths]
    return [answer.get(timeout=CONNECT_SECONDS_MAX) for answer in asked]


def _node_document(client: KazooClient, path: str) -> Document:
    if not path.startswith("/") or "//" in path:
        raise NoSuchNode("a path must start with a slash and have no empty parts")
    wanted = path.rstrip("/") or "/"
    data, stat = client.get(wanted)
    names = sorted(client.get_children(wanted))
    paths = [_join(wanted, name) for name in names[:CHILDREN_SHOWN_MAX]]
    rows = [
        _row(child, found)
        for child, found in zip(paths, _stats(client, paths), strict=True)
        if found is not None
    ]
    return {**_row(wanted, stat), "data": _text(data), "rows": rows,
            "more": max(0, len(names) - CHILDREN_SHOWN_MAX)}  # fmt: skip


def _session_rows(client: KazooClient) -> list[Document]:
    """Walk the tree breadth-first and collect ephemeral nodes by their session."""
    owned: dict[int, list[str]] = {}
    level, walked = ["/"], 0
    while level and walked < NODES_WALKED_MAX:
        level = level[: NODES_WALKED_MAX - walked]
        walked += len(level)
        parents = []
        for path, stat in zip(level, _stats(client, level), strict=True):
            if stat is not None and stat.ephemeralOwner:
                owned.setdefault(stat.ephemeralOwner, []).append(path)
            if stat is not None and stat.numChildren and path not in NOT_WALKED:
                parents.append(path)
        level = _children_of(client, parents)
    return [
        {"session": session_name(owner), "count": len(paths), "paths": paths[:20]}
        for owner, paths in sorted(owned.items())
    ]


def _children_of(client: KazooClient, parents: list[str]) -> list[str]:
    asked = [(path, client.get_children_async(path)) for path in parents]
    found: list[str] = []
    for path, answer in asked:
        try:
            names = answer.get(timeout=CONNECT_SECONDS_MAX)
        except (NoNodeError, NoAuthError):
            continue
        found += [_join(path, name) for name in sorted(names)]
    return found


def _children_data(client: KazooClient, path: str) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    for name in sorted(client.get_children(path))[:CHILDREN_SHOWN_MAX]:
        try:
            found[name] = client.get(_join(path, name))[0] or b""
        except NoNodeError:
            continue
    return found
