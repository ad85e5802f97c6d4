"""What `kafkaesque coord` reads from a tree, as rows and documents; and one candidate's election."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from kafkaesque.cli.render import Column, iso_time

if TYPE_CHECKING:
    from kazoo.client import KazooClient

CHILD_COLUMNS = [
    Column("path", "Path", style="bold"),
    Column("children", "Children", "count"),
    Column("size_bytes", "Bytes", "bytes"),
    Column("version", "Version", "count"),
    Column("session", "Session"),
]


def content(data: bytes | None) -> str | None:
    """Data as text; what is no text is shown byte by byte."""
    return None if data is None else data.decode(errors="backslashreplace")


def session_name(owner: int) -> str | None:
    """As ZooKeeper's own tools write a session id."""
    return f"{owner & (2**64 - 1):#x}" if owner else None


def stat_document(stat: Any) -> dict[str, Any]:
    return {
        "version": stat.version,
        "children": stat.numChildren,
        "size_bytes": stat.dataLength,
        "created": iso_time(stat.ctime),
        "modified": iso_time(stat.mtime),
        "session": session_name(stat.ephemeralOwner),
        "czxid": stat.czxid,
        "mzxid": stat.mzxid,
        "pzxid": stat.pzxid,
        "children_version": stat.cversion,
        "acl_version": stat.aversion,
    }


def walk(client: KazooClient, path: str) -> Iterator[str]:
    """All paths below `path`, parents first; nodes that go meanwhile are left out."""
    from kazoo.exceptions import NoAuthError, NoNodeError

    waiting = [path]
    while waiting:
        at = waiting.pop()
        if at != path:
            yield at
        try:
            names = sorted(client.get_children(at), reverse=True)
        except (NoNodeError, NoAuthError):
            continue
        waiting += [f"{at.rstrip('/')}/{name}" for name in names]


def child_rows(client: KazooClient, path: str, recursive: bool) -> list[dict[str, Any]]:
    names = sorted(client.get_children(path))  # NoNodeError for a path that is not there
    below = walk(client, path) if recursive else [f"{path.rstrip('/')}/{name}" for name in names]
    return [row for child in below if (row := _child_row(client, child)) is not None]


def _child_row(client: KazooClient, path: str) -> dict[str, Any] | None:
    """None for a node that went meanwhile; only its path for one that we may not read."""
    from kazoo.exceptions import NoAuthError

    try:
        stat = client.exists(path)
    except NoAuthError:
        return {column.key: path if column.key == "path" else None for column in CHILD_COLUMNS}
    if stat is None:
        return None
    return {
        "path": path,
        "children": stat.numChildren,
        "size_bytes": stat.dataLength,
        "version": stat.version,
        "session": session_name(stat.ephemeralOwner),
    }


class Candidate:
    """One candidate of a leader election: it creates an ephemeral node, or watches the master's."""

    def __init__(self, client: KazooClient, path: str, name: str) -> None:
        self._client = client
        self._path = path
        self._name = name
        self._changed = threading.Event()

    def run(self) -> tuple[str, str]:
        """Try to become master. Returns ("master" or "follower", the master's name)."""
        from kazoo.exceptions import NodeExistsError

        while True:
            self._changed.clear()
            with contextlib.suppress(NodeExistsError):
                self._client.create(self._path, self._name.encode(), ephemeral=True, makepath=True)
            found = self._client.exists(self._path, watch=lambda _event: self._changed.set())
            if found is None:
                continue
            data, stat = self._client.get(self._path)
            is_master = stat.ephemeralOwner == self._client.client_id[0]
            return ("master" if is_master else "follower"), str(content(data))

    def wait_for_change(self) -> None:
        """Until the node changed or went, or the connection did."""
        self._changed.wait()
