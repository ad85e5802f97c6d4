"""Waiting for a condition that another thread, process or task makes true: polling with a deadline.

Tests that have to poll use these functions. Where there is an event, a future or a process to wait
for, wait for it instead.
"""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")

WITHIN_S = 180.0
"""Long, because the machine may be busy. A test that passes does not wait for it."""
_LOOK_S = 0.01


def eventually(
    condition: Callable[[], T], what: str = "it did not come true", within_s: float = WITHIN_S
) -> T:
    """The first true value of `condition`; AssertionError with `what` at the deadline."""
    deadline = time.monotonic() + within_s
    while not (found := condition()):
        assert time.monotonic() < deadline, f"not within {within_s:.0f} s: {what}"
        time.sleep(_LOOK_S)
    return found


def eventually_passes(attempt: Callable[[], T], within_s: float = 20.0, pause_s: float = 0.02) -> T:
    """The first result of `attempt` without an AssertionError; at the deadline its last error.

    For questions to a server: the pauses grow, so that a slow one is not flooded.
    """
    deadline = time.monotonic() + within_s
    while True:
        try:
            return attempt()
        except AssertionError:
            if time.monotonic() > deadline:
                raise
        time.sleep(pause_s)
        pause_s = min(0.25, pause_s * 1.5)


async def until(
    condition: Callable[[], T | Awaitable[T]],
    what: str = "it did not come true",
    within_s: float = WITHIN_S,
) -> T:
    """The same in an event loop; `condition` may have to be awaited."""
    deadline = time.monotonic() + within_s
    while True:
        found = condition()
        if inspect.isawaitable(found):
            found = await found
        if found:
            return found  # type: ignore[return-value]
        assert time.monotonic() < deadline, f"not within {within_s:.0f} s: {what}"
        await asyncio.sleep(_LOOK_S)
