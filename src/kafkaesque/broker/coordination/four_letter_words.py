"""ZooKeeper's four-letter words, for operators (`echo ruok | nc host 2181`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from typing import NamedTuple

from kafkaesque.broker.coordination.rules.machine import Machine
from kafkaesque.broker.coordination.rules.watches import WatchCounts

WORDS = frozenset(
    ("conf", "cons", "crst", "dirs", "dump", "envi", "gtmk", "hash", "isro", "lead", "mntr", "ruok",
     "srst", "srvr", "stat", "stmk", "wchc", "wchp", "wchs")
)  # fmt: skip
"""All words of ZooKeeper: these four bytes are a word, never the length of a frame."""


@dataclass(slots=True)
class PacketCounts:
    """Counters for `srvr` and `mntr`."""

    received: int = 0
    sent: int = 0


class ClientView(NamedTuple):
    """A connection: its peer address and its session (0: none)."""

    peer: str
    session_id: int


@dataclass(frozen=True, slots=True)
class ServerView:
    """The state of the server for an answer."""

    machine: Machine
    counts: PacketCounts
    watches: WatchCounts
    clients: Sequence[ClientView]
    outstanding: int
    state: str
    """standalone, leader or follower."""


def answer_word(word: str, view: ServerView, allowed: frozenset[str]) -> str:
    if word not in allowed or word not in _ANSWERS:
        return f"{word} is not executed because it is not in the whitelist.\n"
    return _ANSWERS[word](view)


def _ruok(_: ServerView) -> str:
    return "imok"


def _version() -> str:
    return f"3.9.0-kafkaesque-{version('kafkaesque-platform')}"


def _srvr(view: ServerView) -> str:
    counts = view.counts
    return (
        f"Zookeeper version: {_version()}\n"
        f"Received: {counts.received}\n"
        f"Sent: {counts.sent}\n"
        f"Connections: {len(view.clients)}\n"
        f"Outstanding: {view.outstanding}\n"
        f"Zxid: 0x{view.machine.zxid:x}\n"
        f"Mode: {view.state}\n"
        f"Node count: {len(view.machine.tree.nodes)}\n"
    )


def _mntr(view: ServerView) -> str:
    counts, tree = view.counts, view.machine.tree
    values: dict[str, object] = {
        "zk_version": _version(),
        "zk_server_state": view.state,
        "zk_packets_received": counts.received,
        "zk_packets_sent": counts.sent,
        "zk_num_alive_connections": len(view.clients),
        "zk_outstanding_requests": view.outstanding,
        "zk_znode_count": len(tree.nodes),
        "zk_watch_count": view.watches.watches,
        "zk_ephemerals_count": tree.ephemeral_count,
        "zk_approximate_data_size": tree.size_bytes,
        "zk_global_sessions": len(view.machine.sessions),
        "zk_last_processed_zxid": view.machine.zxid,
    }
    return "".join(f"{name}\t{value}\n" for name, value in values.items())


def _envi(_: ServerView) -> str:
    """The version only, which kazoo's `server_version` reads; the rest is not disclosed."""
    return f"Environment:\nzookeeper.version={_version()}\n"


def _dump(view: ServerView) -> str:
    """All sessions, in the format of a ZooKeeper follower (LearnerSessionTracker.dumpSessions), and
    this server's connections. Ephemeral nodes are left out: their paths are subject to ACLs."""
    sessions = sorted(view.machine.sessions.items())
    shown = [f"0x{session_id:x}\t{session.timeout_ms}ms\n" for session_id, session in sessions]
    linked = [f"\tip: /{peer} sessionId: 0x{session_id:x}\n" for peer, session_id in view.clients]
    return (
        f"SessionTracker dump:\nGlobal Sessions({len(shown)}):\n{''.join(shown)}"
        f"Connections dump:\nConnections Sets (1)/({len(linked)}):\n{''.join(linked)}"
    )


_ANSWERS = {"ruok": _ruok, "srvr": _srvr, "mntr": _mntr, "envi": _envi, "dump": _dump}
