"""Fences delayed requests of the old flow by the connection over which they arrive.

In the old flow a producer's epoch is the same in every transaction, so a delayed EndTxn or
AddPartitionsToTxn would fit the next transaction as well as its own. The connection distinguishes
them: a client uses one connection to a broker for such requests, and opens another only when it has
given up the first. So once a producer has used a connection, requests over an older one are
rejected, however often they come. After a coordinator took over, connections older than that are
rejected for producers whose start it did not see, because it has no record of what another broker
received meanwhile. A rejected request has its connection closed. A live client reconnects and
retries; a delayed message has no client left to do that.
"""

from __future__ import annotations

from collections.abc import Hashable
from math import inf
from typing import Final

ANY_CONNECTION: Final = -inf
"""Older than any connection."""


class ConnectionFence:
    """The newest connections of one transactional id, identified by their time (monotonic).

    Connections that request an identity (InitProducerId) count apart from those that use it: aiokafka
    has one for each.
    """

    __slots__ = ("_newest", "_newest_init")

    def __init__(self, since: float = ANY_CONNECTION, init: float | None = None) -> None:
        """`since`: when a coordinator took over. `init`: the connection that created the id."""
        self._newest = since
        self._newest_init = since if init is None else init

    def admits_init(self, connected_at: float) -> bool:
        """Whether to accept InitProducerId over this connection."""
        is_admitted = connected_at >= self._newest_init
        self._newest_init = max(self._newest_init, connected_at)
        return is_admitted

    def admits(self, connected_at: float) -> bool:
        """Whether to accept a request of the current identity over this connection."""
        is_admitted = connected_at >= self._newest
        self._newest = max(self._newest, connected_at)
        return is_admitted

    def begin(self) -> None:
        """The id has a new identity, which no connection has used yet."""
        self._newest = ANY_CONNECTION


class NewestConnections:
    """The newest connection of each of many producers. The least recently active producers are
    evicted; from then on an unknown producer is rejected over any connection older than theirs."""

    __slots__ = ("_count_max", "_floor", "_newest")

    def __init__(self, count_max: int) -> None:
        self._count_max = count_max
        self._newest: dict[Hashable, float] = {}
        self._floor = ANY_CONNECTION

    def admits(self, key: Hashable, connected_at: float, since: float = ANY_CONNECTION) -> bool:
        """`since`: if `key` is unknown, the connection must not be older than this."""
        newest = self._newest.pop(key, None)
        if newest is None:
            newest = max(since, self._floor)
        if len(self._newest) >= self._count_max:
            self._floor = max(self._floor, self._newest.pop(next(iter(self._newest))))
        self._newest[key] = max(newest, connected_at)
        return connected_at >= newest
