"""Accounts for the memory of requests that have not arrived completely, and chooses which to close.

The listener closes the connections. Complete requests are accounted for elsewhere: their sum falls
as they are answered, so sockets can be left unread until it has. An incomplete request depends on
its sender. Leaving its socket unread would keep it forever, and leaving the other sockets unread
would let one client stop all others. So beyond a limit, the costliest connections are closed.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic, NamedTuple, TypeVar

C = TypeVar("C")

AGE_SECONDS_MIN = 1.0
"""Added to each age, so that requests begun within this second are ranked by size alone."""


class _Part(NamedTuple):
    size_bytes: int
    """The size of its receive buffer."""
    since: float
    """When its first bytes arrived, monotonic."""


class IncompleteRequests(Generic[C]):
    """The incomplete requests by connection, of type `C`."""

    __slots__ = ("_parts", "size_bytes")

    def __init__(self) -> None:
        self._parts: dict[C, _Part] = {}
        self.size_bytes = 0

    def note(self, connection: C, size_bytes: int, now: float, *, is_new: bool) -> None:
        """Records what `connection` holds now. `is_new`: it is another request than before."""
        before = self._parts.get(connection)
        if before is not None:
            self.size_bytes -= before.size_bytes
        self.size_bytes += size_bytes
        since = now if before is None or is_new else before.since
        self._parts[connection] = _Part(size_bytes, since)

    def forget(self, connection: C) -> None:
        before = self._parts.pop(connection, None)
        if before is not None:
            self.size_bytes -= before.size_bytes

    def take_costliest(self, limit_bytes: int, now: float) -> Iterator[tuple[C, int, float]]:
        """Removes and yields, with size and age, the requests that have held most memory for
        longest, until the rest is an eighth below the limit. The margin avoids a search through all
        connections for each new request."""

        def cost(item: tuple[C, _Part]) -> float:
            return item[1].size_bytes * (now - item[1].since + AGE_SECONDS_MIN)

        enough_bytes = limit_bytes - limit_bytes // 8
        for connection, part in sorted(self._parts.items(), key=cost, reverse=True):
            if self.size_bytes <= enough_bytes:
                return
            self.forget(connection)
            yield connection, part.size_bytes, now - part.since
