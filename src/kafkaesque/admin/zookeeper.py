"""A coordination tree, its sessions and leader elections, on our coordination service or any ZooKeeper.

The ZooKeeper protocol cannot list sessions. The four-letter word `dump` can, if a server permits it;
without it only the owners of ephemeral nodes are found. kazoo is imported late: it is optional.
"""

from __future__ import annotations

import contextlib
import re
import socket
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from kafkaesque.admin.errors import AdminError, ClusterUnreachable, ResourceNotFound

if TYPE_CHECKING:
    from kazoo.client import KazooClient

_ANSWER_SECONDS_MAX = 5.0
_SESSIONS_HEADER = "SessionTracker dump:"
# A leader prints one session per line; a follower adds the timeout.
_SESSION = re.compile(r"^\s*(0x[0-9a-f]+)(?:\s+(\d+)ms)?$")
_CONNECTION = re.compile(r"ip: /(\S+) sessionId: (0x[0-9a-f]+)")


_REASONS = {
    "NodeExistsError": (
        "the node exists already",
        "change its data with `set`, or delete it first",
    ),
    "NotEmptyError": ("the node has children", "delete them first, or with --recursive"),
    "BadVersionError": (
        "the node has another version: another client changed it",
        "read the node again to see its version",
    ),
    "NoAuthError": ("the node's access list does not allow it", "log in as a permitted user"),
    "BadArgumentsError": ("the path is invalid, or the node cannot be deleted", "check the path"),
    "NoChildrenForEphemeralsError": (
        "an ephemeral node cannot have children",
        "choose another path",
    ),
    "ConnectionLoss": (
        "the connection was lost; the change may or may not have been made",
        "read the node to find out, then try again",
    ),
}
"""What happened and what to do, by kazoo's exception."""


@contextlib.contextmanager
def connect(servers: str, timeout_s: float) -> Iterator[KazooClient]:
    """A started client. Exceptions of kazoo, also those of the block, become AdminErrors."""
    try:
        from kazoo import exceptions
        from kazoo.client import KazooClient
        from kazoo.handlers.threading import KazooTimeoutError
    except ImportError:
        raise AdminError(
            "the ZooKeeper client `kazoo` is not installed", "pip install kazoo"
        ) from None
    client = KazooClient(hosts=servers, timeout=timeout_s)
    try:
        client.start(timeout=timeout_s)
        yield client
    except KazooTimeoutError:
        raise ClusterUnreachable(f"no ZooKeeper answered at {servers}") from None
    except exceptions.NoNodeError:
        raise ResourceNotFound(
            "the node does not exist", "`kafkaesque coord ls` lists nodes"
        ) from None
    except exceptions.KazooException as error:
        name = type(error).__name__
        raise AdminError(*_REASONS.get(name, (f"{name}: {error}", None))) from None
    finally:
        client.stop()
        client.close()


def data_text(data: bytes | None) -> str | None:
    """A node's data as text; bytes that are not UTF-8 are escaped."""
    return None if data is None else data.decode(errors="backslashreplace")


def session_name(owner: int) -> str | None:
    """A session id in the notation of ZooKeeper's own tools; None for 0."""
    return f"{owner & (2**64 - 1):#x}" if owner else None


def stat_row(stat: Any) -> dict[str, Any]:
    """A node's ZnodeStat with readable field names; times are milliseconds since the epoch."""
    return {
        "version": stat.version,
        "children": stat.numChildren,
        "size_bytes": stat.dataLength,
        "created": stat.ctime,
        "modified": stat.mtime,
        "session": session_name(stat.ephemeralOwner),
        "czxid": stat.czxid,
        "mzxid": stat.mzxid,
        "pzxid": stat.pzxid,
        "children_version": stat.cversion,
        "acl_version": stat.aversion,
    }


def delete_node(client: KazooClient, path: str, *, version: int, recursive: bool) -> None:
    """Deletes a node; with `recursive` also all descendants. Raises ResourceNotFound or NoNodeError."""
    if recursive and client.exists(path) is None:
        # kazoo treats a missing node as already deleted.
        raise ResourceNotFound(
            f"the node {path} does not exist", "`kafkaesque coord ls` lists nodes"
        )
    client.delete(path, version=version, recursive=recursive)


def walk(client: KazooClient, path: str) -> Iterator[str]:
    """All paths below `path`, parents first. Skips nodes that are deleted during the walk."""
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
    """One row for each child, or each descendant. Raises NoNodeError if `path` does not exist."""
    names = sorted(client.get_children(path))
    below = walk(client, path) if recursive else [f"{path.rstrip('/')}/{name}" for name in names]
    return [row for child in below if (row := _child_row(client, child)) is not None]


def _child_row(client: KazooClient, path: str) -> dict[str, Any] | None:
    """None if the node was deleted meanwhile; only the path if its ACL forbids reading it."""
    from kazoo.exceptions import NoAuthError

    row = dict.fromkeys(("path", "children", "size_bytes", "version", "session")) | {"path": path}
    try:
        stat = client.exists(path)
    except NoAuthError:
        return row
    if stat is None:
        return None
    return row | {
        "children": stat.numChildren,
        "size_bytes": stat.dataLength,
        "version": stat.version,
        "session": session_name(stat.ephemeralOwner),
    }


def watch_node(client: KazooClient, path: str, on_change: Callable[[str, Any], bool]) -> None:
    """Calls `on_change` now and at every change, from kazoo's thread, until it returns False.

    Its arguments are "data" and the text (None if the node is absent), or "children" and their names.
    """
    watched_czxid = 0

    def on_data(data: bytes | None, stat: Any) -> bool:
        nonlocal watched_czxid
        continues = on_change("data", data_text(data))
        if continues and stat is not None and stat.czxid != watched_czxid:
            # A children watch ends when its node is deleted: a new node needs a new watch.
            watched_czxid = stat.czxid
            client.ChildrenWatch(path, lambda names: on_change("children", sorted(names)))
        return continues

    client.DataWatch(path, on_data)


class Dump(NamedTuple):
    """One server's response to `dump`: the sessions of all servers, and its own connections."""

    timeouts_ms: dict[str, int | None]
    """By session."""
    clients: dict[str, str]
    """Client address, by session."""


def read_dump(response: str) -> Dump | None:
    """Parse a response to `dump`; None if the server does not permit it."""
    if _SESSIONS_HEADER not in response:
        return None
    timeouts: dict[str, int | None] = {}
    clients: dict[str, str] = {}
    in_sessions = False
    for line in response.splitlines():
        if line.endswith("dump:"):
            in_sessions = line == _SESSIONS_HEADER
        elif in_sessions and (found := _SESSION.match(line)):
            timeouts[found[1]] = int(found[2]) if found[2] else None
        elif found := _CONNECTION.search(line):
            clients[found[2]] = found[1]
    return Dump(timeouts, clients)


def session_rows(client: KazooClient) -> tuple[list[dict[str, Any]], bool]:
    """One row for each session, and whether they are all sessions or only owners of ephemeral nodes."""
    owned: dict[str, list[str]] = {}
    for row in child_rows(client, "/", recursive=True):
        if row["session"] is not None:
            owned.setdefault(row["session"], []).append(row["path"])
    rows = {session: _session_row(session) for session in owned}
    dumps = _dumps(client.hosts)
    if dumps:
        # Owners that no dump lists are not sessions: our registries show brokers and consumers as nodes.
        rows = {session: _session_row(session) for _, dump in dumps for session in dump.timeouts_ms}
    for server, dump in dumps:
        for session, timeout_ms in dump.timeouts_ms.items():
            rows[session]["timeout_ms"] = rows[session]["timeout_ms"] or timeout_ms
        for session in rows.keys() & dump.clients.keys():
            rows[session] |= {"client": dump.clients[session], "server": server}
    for session in rows.keys() & owned.keys():
        rows[session] |= {"count": len(owned[session]), "paths": owned[session]}
    return [rows[session] for session in sorted(rows)], bool(dumps)


def _session_row(session: str) -> dict[str, Any]:
    return {
        "session": session,
        "timeout_ms": None,
        "client": None,
        "server": None,
        "count": 0,
        "paths": [],
    }


def _dumps(servers: Iterable[tuple[str, int]]) -> list[tuple[str, Dump]]:
    """Dumps of the servers that are reachable and permit `dump`."""
    found = []
    for host, port in servers:
        with contextlib.suppress(OSError):
            dump = read_dump(_send_word(host, port, b"dump"))
            if dump is not None:
                found.append((f"{host}:{port}", dump))
    return found


def _send_word(host: str, port: int, word: bytes) -> str:
    """The response to a four-letter word."""
    with socket.create_connection((host, port), _ANSWER_SECONDS_MAX) as connection:
        connection.sendall(word)
        parts = []
        while part := connection.recv(1 << 16):
            parts.append(part)
    return b"".join(parts).decode(errors="replace")


class ElectionCandidate:
    """One candidate of a leader election: creates an ephemeral node, or watches the master's."""

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
            return ("master" if is_master else "follower"), str(data_text(data))

    def wait_for_change(self) -> None:
        """Block until the node changes or is deleted, or the connection is lost."""
        self._changed.wait()
