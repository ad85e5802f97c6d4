"""Who is in the middle of sending a request, and what those requests take up so far.

Only kept and judged here; the listener closes. Complete requests are another account: their sum falls
by itself as they are answered, so sockets may be left unread until it has. Whether an incomplete one
is ever completed is up to its peer. To leave it unread would keep it for ever, and to leave the
others unread would let one peer stop them all, so beyond a bound the costliest are closed.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic, NamedTuple, TypeVar

C = TypeVar("C")

AGE_SECONDS_MIN = 1.0
"""Added to each age: whoever began this second is judged by size alone."""


class _Part(NamedTuple):
    size_bytes: int
    """Of the buffer that it is received into."""
    since: float
    """When its first bytes came, monotonic."""


class IncompleteRequests(Generic[C]):
    """The account; `C` is a connection."""

    __slots__ = ("_parts", "size_bytes")

    def __init__(self) -> None:
        self._parts: dict[C, _Part] = {}
        self.size_bytes = 0

    def note(self, connection: C, size_bytes: int, now: float, *, is_new: bool) -> None:
        """What `connection` holds now; `is_new` if of another request than at the last time."""
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
        """Forget, and tell with size and age, those that have held most for longest, until what is
        left is below the limit by an eighth: one search in so many connections must not be needed
        for each that comes."""

        def cost(item: tuple[C, _Part]) -> float:
            return item[1].size_bytes * (now - item[1].since + AGE_SECONDS_MIN)

        enough_bytes = limit_bytes - limit_bytes // 8
        for connection, part in sorted(self._parts.items(), key=cost, reverse=True):
            if self.size_bytes <= enough_bytes:
                return
            self.forget(connection)
            yield connection, part.size_bytes, now - part.since
