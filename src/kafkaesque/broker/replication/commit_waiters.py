"""Futures by log position: what waits until a log is committed, or applied, up to some point."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Generic, TypeVar

PositionT = TypeVar("PositionT", bound=int)
"""A log index or an offset."""


class CommitWaiters(Generic[PositionT]):
    """Futures that resolve when a log reaches their positions.

    The owner keeps the current position and adds only positions beyond it. Everything runs on the
    event loop's thread. A future that its waiter has cancelled is skipped.
    """

    __slots__ = ("_new_future", "pending")

    def __init__(self, new_future: Callable[[], asyncio.Future[None]] = asyncio.Future) -> None:
        """`new_future` is the event loop's `create_future`, for a loop that is not the running one."""
        self._new_future = new_future
        self.pending: list[tuple[PositionT, asyncio.Future[None]]] = []
        """Not sorted: a retry may wait for an older position than the request before it. Empty
        if `advance` has nothing to do; a hot path tests this before it calls."""

    def add(self, position: PositionT) -> asyncio.Future[None]:
        """Returns a future that resolves when the log has reached `position`."""
        future = self._new_future()
        self.pending.append((position, future))
        return future

    def advance(self, position: PositionT) -> None:
        """Resolves the futures of all positions up to and including `position`."""
        pending = self.pending
        if not pending:
            return
        self.pending = [waiter for waiter in pending if waiter[0] > position]
        for wanted, future in pending:
            if wanted <= position and not future.done():
                future.set_result(None)

    def fail_all(self, error: BaseException) -> None:
        """Fails every future: this node can no longer say whether the position is reached."""
        pending, self.pending = self.pending, []
        for _, future in pending:
            if not future.done():
                future.set_exception(error)
