"""The sessions of a ZooKeeper, ours or any: their clients and ephemeral nodes.

The protocol cannot list sessions. The four-letter word `dump` can, if a server permits it; without it only
the owners of ephemeral nodes are known.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from kafkaesque.cli.coord_view import child_rows
from kafkaesque.cli.render import Column

if TYPE_CHECKING:
    from kazoo.client import KazooClient

SESSION_COLUMNS = [
    Column("session", "Session", style="bold"),
    Column("timeout_ms", "Timeout ms", "count"),
    Column("client", "Client"),
    Column("server", "Server"),
    Column("count", "Nodes", "count"),
    Column("paths", "Paths"),
]
_ANSWER_SECONDS_MAX = 5.0
_BEGINNING = "SessionTracker dump:"
# A leader prints one session per line; a follower adds the timeout.
_SESSION = re.compile(r"^\s*(0x[0-9a-f]+)(?:\s+(\d+)ms)?$")
_CONNECTION = re.compile(r"ip: /(\S+) sessionId: (0x[0-9a-f]+)")


class Dump(NamedTuple):
    """One server's answer to `dump`: all sessions, and the server's own connections."""

    timeouts_ms: dict[str, int | None]
    """By session."""
    clients: dict[str, str]
    """Client address, by session."""


def read_dump(answer: str) -> Dump | None:
    """None if the server refused."""
    if _BEGINNING not in answer:
        return None
    timeouts: dict[str, int | None] = {}
    clients: dict[str, str] = {}
    is_of_sessions = False
    for line in answer.splitlines():
        if line.endswith("dump:"):
            is_of_sessions = line == _BEGINNING
        elif is_of_sessions and (found := _SESSION.match(line)):
            timeouts[found[1]] = int(found[2]) if found[2] else None
        elif found := _CONNECTION.search(line):
            clients[found[2]] = found[1]
    return Dump(timeouts, clients)


def session_rows(client: KazooClient) -> tuple[list[dict[str, Any]], bool]:
    """Rows, and whether they are all sessions or only the owners of ephemeral nodes."""
    owned: dict[str, list[str]] = {}
    for row in child_rows(client, "/", recursive=True):
        if row["session"] is not None:
            owned.setdefault(row["session"], []).append(row["path"])
    rows = {session: _row(session) for session in owned}
    dumps = _dumps(client.hosts)
    if dumps:
        # Other owners of nodes are no sessions: the registries show brokers and consumers as nodes.
        rows = {session: _row(session) for _, dump in dumps for session in dump.timeouts_ms}
    for server, dump in dumps:
        for session, timeout_ms in dump.timeouts_ms.items():
            rows[session]["timeout_ms"] = rows[session]["timeout_ms"] or timeout_ms
        for session in rows.keys() & dump.clients.keys():
            rows[session] |= {"client": dump.clients[session], "server": server}
    for session in rows.keys() & owned.keys():
        rows[session] |= {"count": len(owned[session]), "paths": owned[session]}
    return [rows[session] for session in sorted(rows)], bool(dumps)


def _row(session: str) -> dict[str, Any]:
    known: dict[str, Any] = {column.key: None for column in SESSION_COLUMNS}
    return {**known, "session": session, "count": 0, "paths": []}


def _dumps(servers: Iterable[tuple[str, int]]) -> list[tuple[str, Dump]]:
    """From the servers that answer and permit it."""
    found = []
    for host, port in servers:
        with suppress(OSError):
            dump = read_dump(_ask(host, port, b"dump"))
            if dump is not None:
                found.append((f"{host}:{port}", dump))
    return found


def _ask(host: str, port: int, word: bytes) -> str:
    with socket.create_connection((host, port), _ANSWER_SECONDS_MAX) as link:
        link.sendall(word)
        parts = []
        while part := link.recv(1 << 16):
            parts.append(part)
    return b"".join(parts).decode(errors="replace")
