"""Looks that share what is dear to find out."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from kafkaesque.model.clock import Clock

COSTLY_SECONDS: Final = 0.05
"""As long as hundreds of consumer groups take."""
REUSE: Final = 10


class Gathering:
    """Runs `gather`, which tells how long it held up the event loop, one at a time.

    What cost COSTLY_SECONDS or more is good for REUSE times as long: so looks, however many, take a
    tenth of the loop at most. What is cheap is gathered for every look, and so is never old.
    """

    __slots__ = ("_clock", "_fresh_until_s", "_gather", "_turn")

    def __init__(self, gather: Callable[[], Awaitable[float]], clock: Clock) -> None:
        self._gather = gather
        self._clock = clock
        self._fresh_until_s = clock.monotonic()
        self._turn = asyncio.Lock()

    async def look(self) -> None:
        async with self._turn:
            if self._clock.monotonic() < self._fresh_until_s:
                return
            cost_s = await self._gather()
            if cost_s >= COSTLY_SECONDS:
                self._fresh_until_s = self._clock.monotonic() + REUSE * cost_s
