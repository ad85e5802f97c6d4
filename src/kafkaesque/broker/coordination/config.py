"""The settings of the coordination service."""

from __future__ import annotations

from dataclasses import dataclass

from kafkaesque.model.errors import InvalidConfig
from kafkaesque.model.limits import KIB, MIB


@dataclass(frozen=True, slots=True)
class CoordinationConfig:
    """The defaults are ZooKeeper's, for settings that it has."""

    min_session_timeout_ms: int = 4000
    """`minSessionTimeout`: a client that requests less gets this."""
    max_session_timeout_ms: int = 40_000
    """`maxSessionTimeout`: a client that requests more gets this."""
    max_frame_bytes: int = MIB - 1
    """`jute.maxbuffer`: a longer request closes its connection. Bounds a node's data too."""
    max_connections_per_host: int = 60
    """`maxClientCnxns`: the most connections from one address; 0: no limit."""
    max_connections: int = 10_000
    """`maxCnxns`: the most connections from all addresses; 0: no limit."""
    max_outstanding_requests: int = 1000
    """With this many unanswered requests, a connection's socket is no longer read."""
    max_unsent_bytes: int = 16 * MIB
    """A client with more unread answers and events than this is disconnected."""
    connect_timeout_ms: int = 10_000
    """A connection without a session by then is closed."""
    tick_interval_ms: int = 200
    """How often touched sessions are reported to the leader, and silent ones expired."""
    reap_interval_ms: int = 60_000
    """`znode.container.checkIntervalMs`: how often containers and TTLs are checked."""
    four_letter_words: frozenset[str] = frozenset(("ruok", "srvr", "mntr", "envi", "dump"))
    """`4lw.commands.whitelist`, limited to the implemented words."""

    def __post_init__(self) -> None:
        if not 0 < self.min_session_timeout_ms <= self.max_session_timeout_ms:
            raise InvalidConfig("minSessionTimeout must be positive and at most maxSessionTimeout")
        if self.tick_interval_ms * 2 > self.min_session_timeout_ms:
            raise InvalidConfig("the tick must be at most half of minSessionTimeout")
        if self.max_frame_bytes < KIB:
            raise InvalidConfig("jute.maxbuffer must be at least 1024")
