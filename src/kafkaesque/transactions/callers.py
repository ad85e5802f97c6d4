"""Which connection speaks for a transactional id: what comes late over an older one is not heard.

In the old flow the epoch of a producer is the same in every transaction, so an EndTxn, or a partition
to add, that was held back on its way fits the next transaction as well as its own. But a client that
gives up waiting connects anew, and asks again there; and it asks one thing at a time. So a request
over a connection that is older than the last one is told once to try again: a client that is there
does, and is heard; a message that was late does not.
"""

from __future__ import annotations

from typing import NamedTuple


class _Known(NamedTuple):
    connected_at: float
    doubted_at: float | None
    """When the older connection was made that was told to try again."""


class Callers:
    """The last connection of each id; the ids that spoke least recently are forgotten."""

    __slots__ = ("_ids_max", "_known")

    def __init__(self, ids_max: int) -> None:
        self._ids_max = ids_max
        self._known: dict[str, _Known] = {}

    def admits(self, transactional_id: str, connected_at: float) -> bool:
        """Whether a request over the connection made at `connected_at` (monotonic) is heard."""
        known = self._known.pop(transactional_id, None)
        is_heard = known is None or connected_at in (known.connected_at, known.doubted_at)
        if known is None or is_heard or connected_at > known.connected_at:
            is_heard, new = True, _Known(connected_at, None)
        else:
            new = known._replace(doubted_at=connected_at)
        if len(self._known) >= self._ids_max:
            del self._known[next(iter(self._known))]
        self._known[transactional_id] = new
        return is_heard
