"""Which connections are heard in the old flow: what comes late over one that was given up is not.

There the epoch of a producer is the same in every transaction, so an EndTxn, or a partition to add,
that was held back on its way fits the next transaction as well as its own. What tells them apart is
the connection: a client has one to a broker for such requests, and makes another only when it has
given up the first. So once a producer was heard over a connection, nothing of it is heard over an
older one, however often it comes; and no connection that was made before a coordinator took over is
heard for a producer that it did not see begin, because it cannot know what another broker heard
meanwhile. Whoever is not heard has his connection closed. A client that is there makes a new one,
and asks again; a message that was late has nobody to do that.
"""

from __future__ import annotations

from collections.abc import Hashable
from math import inf
from typing import Final

ANY_CONNECTION: Final = -inf
"""Older than all."""


class Callers:
    """Connections of one transactional id, each known by when it was made (monotonic).

    Those that ask for an identity count apart from those that use it: aiokafka has one for each.
    """

    __slots__ = ("_newest", "_newest_init")

    def __init__(self, since: float = ANY_CONNECTION, init: float | None = None) -> None:
        """`since`: when a coordinator took over. `init`: the connection that brought the id."""
        self._newest = since
        self._newest_init = since if init is None else init

    def hears_init(self, connected_at: float) -> bool:
        """Whether InitProducerId is heard."""
        is_heard = connected_at >= self._newest_init
        self._newest_init = max(self._newest_init, connected_at)
        return is_heard

    def hears(self, connected_at: float) -> bool:
        """Whether a request of the identity that the id has now is heard."""
        is_heard = connected_at >= self._newest
        self._newest = max(self._newest, connected_at)
        return is_heard

    def begin(self) -> None:
        """The id has a new identity: nobody has used it yet."""
        self._newest = ANY_CONNECTION


class NewestConnections:
    """The newest connection of each of many producers. Those heard least recently are forgotten, and
    from then on no connection is heard, for whom we know nothing of, that is older than theirs."""

    __slots__ = ("_count_max", "_floor", "_newest")

    def __init__(self, count_max: int) -> None:
        self._count_max = count_max
        self._newest: dict[Hashable, float] = {}
        self._floor = ANY_CONNECTION

    def hears(self, key: Hashable, connected_at: float, since: float = ANY_CONNECTION) -> bool:
        """`since`: if `key` is not known here, what the connection must not be older than."""
        newest = self._newest.pop(key, None)
        if newest is None:
            newest = max(since, self._floor)
        if len(self._newest) >= self._count_max:
            self._floor = max(self._floor, self._newest.pop(next(iter(self._newest))))
        self._newest[key] = max(newest, connected_at)
        return connected_at >= newest
